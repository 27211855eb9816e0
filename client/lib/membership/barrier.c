/* Barriers: rounds without bytes, on a tensor that the library declares. */
#include "client/lib/declare/declare.h"
#include "client/lib/round/push_pull.h"
#include "client/lib/round/wait.h"
#include "client/lib/session/process.h"
#include "svc/base/clock.h"

#include <errno.h>

#define BARRIER_NAME "gradpool.barrier"

/* Waits for a barrier. After a time-out the barrier stays open, and the next call waits for this
 * barrier instead of beginning another one. */
static int pass_barrier(gp_job *job, uint64_t deadline_ns, uint64_t timeout_ns)
{
    if (!job->barrier_request) {
        int error = push_internal(job->barrier, RECORD_BARRIER, &job->barrier_request);
        if (error < 0)
            return error;
    } else if (job->is_in_barrier) {
        return client_error(
            -EBUSY,
            "another thread waits in gp_barrier() of job '%s'; call gp_barrier() from one thread",
            job->name);
    }
    job->is_in_barrier = true;
    int error = wait_locked(job->barrier_request, deadline_ns, timeout_ns);
    job->is_in_barrier = false;
    if (error != -ETIMEDOUT)
        job->barrier_request = NULL;
    return error;
}

int gp_barrier(gp_job *job, int timeout_ms)
{
    int error = job_check(job);
    if (error < 0)
        return error;
    struct gp_tensor *barrier;
    uint64_t timeout_ns = wait_timeout_ns(job->client, timeout_ms);
    /* deadline of the declare and the wait together */
    uint64_t deadline_ns = clock_now_ns() + timeout_ns;
    job->users++;
    error = declare_internal(job, BARRIER_NAME, GP_F32, 0, timeout_ns, &barrier);
    pthread_mutex_lock(&job->lock);
    if (error == 0) {
        job->barrier = barrier;
        error = pass_barrier(job, deadline_ns, timeout_ns);
    }
    job_end_use(job);
    return error;
}
