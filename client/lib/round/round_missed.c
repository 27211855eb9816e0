/* Results of rounds without a gradient of this rank, in a job with backup workers (W22):
 * gp_round_skip() for a rank that gives up its gradient, gp_round_next() for a rank that fetches
 * the sums of all rounds that it has missed. round_end.c owns struct backup_rounds. */
#include "client/lib/round/gradients.h"
#include "client/lib/round/internal.h"
#include "client/lib/round/wait.h"
#include "client/lib/session/process.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <inttypes.h>

/* ---- a round without a gradient of this rank ---- */

static int round_skip_refuse(const struct gp_job *job, const char *name)
{
    return client_error(-EINVAL,
                        "tensor '%s' has a gradient in round %" PRIu64
                        " of job '%s' already; call gp_round_end()",
                        name, job->backup.held + 1, job->name);
}

/* Returns -EINVAL, with a text, if this rank has ended no round: later results are written to the
 * results of a push. */
static int round_skip_check_first(const struct gp_job *job)
{
    if (job->backup.held > 0 || job->backup.phase != BACKUP_OPEN)
        return 0;
    return client_error(-EINVAL,
                        "job '%s': rank %u has ended no round, so no results of a push are "
                        "known; push each tensor and call gp_round_end() first",
                        job->name, job->rank);
}

static int round_skip_check(struct gp_job *job)
{
    const struct backup_rounds *b = &job->backup;
    for_each_tensor (t, job) {
        const struct push *push = t->is_queued || t->is_starting ? &t->next : &t->open;
        bool is_pushed =
            tensor_follows(t, push->operation) && push->root == (uint32_t)(b->held + 1);
        if (terms_are_following(&t->terms) && is_pushed)
            return round_skip_refuse(job, t->name);
    }
    return round_end_check_requests(job);
}

static int round_skip_begin(struct gp_job *job, uint64_t deadline_ns)
{
    struct backup_rounds *b = &job->backup;
    if (b->phase == BACKUP_OPEN) {
        int error = round_skip_check(job);
        return error < 0 ? error : round_end_announce_none(job, deadline_ns);
    }
    if (gradients_pushed(job) > gradients_announced(job))
        return round_skip_refuse(job, b->leader->name);
    round_end_leave(job);
    return 0;
}

static int round_skip_locked(struct gp_job *job, uint64_t deadline_ns, uint64_t timeout_ns,
                             gp_round *ret_round)
{
    struct backup_rounds *b = &job->backup;
    bool begins = b->phase == BACKUP_OPEN || b->phase == BACKUP_AGAIN;
    bool is_closed = backup_passed(b) > b->held;
    int error = round_skip_check_first(job) ?: round_end_check_missed(job);
    if (error == 0 && begins && !is_closed)
        return ROUND_GOES_ON;
    error = error ?: round_end_begin_use(job);
    if (error < 0)
        return error;
    error = begins ? round_skip_begin(job, deadline_ns) : 0;
    if (error == 0)
        error = round_end_go_on(job, deadline_ns, timeout_ns, ret_round);
    b->is_used = false;
    return error;
}

int gp_round_skip(gp_job *job, int timeout_ms, gp_round *ret_round)
{
    int error = round_end_check_job(job);
    if (error < 0)
        return error;
    uint64_t timeout_ns = wait_timeout_ns(job->client, timeout_ms);
    uint64_t deadline_ns = clock_now_ns() + timeout_ns;
    job->users++;
    pthread_mutex_lock(&job->lock);
    error = round_skip_locked(job, deadline_ns, timeout_ns, ret_round);
    job_end_use(job);
    return error;
}

/* Makes the progress thread read messages of lanes while no call waits, because PASSED arrives
 * during a computation. */
static void round_missed_watch(struct gp_job *job)
{
    pthread_mutex_lock(&job->lock);
    atomic_fetch_or_explicit(&job->backup.passed, BACKUP_WATCHED, memory_order_relaxed);
    engine_flush(&job->engine);
    pthread_mutex_unlock(&job->lock);
}

uint64_t gp_job_passed(gp_job *job)
{
    if (!job || job->backup.count == 0)
        return 0;
    if (!backup_is_watched(&job->backup) && job_check(job) == 0)
        round_missed_watch(job);
    return backup_passed(&job->backup);
}

/* ---- the results of more rounds ---- */

static int round_next_locked(struct gp_job *job, uint64_t deadline_ns)
{
    struct backup_rounds *b = &job->backup;
    if (b->phase == BACKUP_OPEN && b->held >= b->newest)
        return 0;
    int error = b->phase == BACKUP_OPEN ? round_end_check_requests(job) : 0;
    if (error < 0)
        return error;
    if (b->phase == BACKUP_OPEN) {
        b->phase = BACKUP_NEXT;
        round_end_take_all(job, b->held, b->held + 1, b->newest);
    }
    error = round_end_await_sums(job, deadline_ns);
    if (error < 0)
        return error;
    round_end_copy_taken(job);
    round_end_finish(job, NULL);
    return 1;
}

static int round_next_use(struct gp_job *job, uint64_t deadline_ns)
{
    struct backup_rounds *b = &job->backup;
    if (!b->leader || b->leader->terms.lag == 0)
        return 0; /* no round has ended yet, or the job has update rules and needs no sums */
    int error = round_end_begin_use(job);
    if (error < 0)
        return error;
    if (b->phase != BACKUP_OPEN && b->phase != BACKUP_NEXT)
        error = client_error(-EINVAL,
                             "job '%s' round %" PRIu64 " is not ended; call gp_round_end() first",
                             job->name, b->held + 1);
    else
        error = round_next_locked(job, deadline_ns);
    b->is_used = false;
    return error;
}

int gp_round_next(gp_job *job, int timeout_ms)
{
    int error = job_check(job);
    if (error < 0)
        return error;
    uint64_t deadline_ns = clock_now_ns() + wait_timeout_ns(job->client, timeout_ms);
    job->users++;
    pthread_mutex_lock(&job->lock);
    error = round_next_use(job, deadline_ns);
    job_end_use(job);
    return error;
}
