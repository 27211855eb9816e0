/* Logs a line with a worker's rounds, bytes and waits since the previous line. */
#include "client/lib/report/progress.h"

#include "client/lib/job/job.h"
#include "svc/base/clock.h"
#include "svc/base/log.h"

#include <inttypes.h>

#define MIB (1 << 20)

/* Returns the counters; the time of waits includes a wait in progress. */
static struct progress_counts progress_count(const struct progress *p)
{
    struct progress_counts now = p->now;
    now.at_ns = clock_now_ns();
    if (p->waiting > 0)
        now.waited_ns += now.at_ns - p->waiting_since_ns;
    return now;
}

void progress_tell(void *context)
{
    struct gp_job *job = context;
    struct progress *p = &job->progress;
    pthread_mutex_lock(&job->lock);
    struct progress_counts now = progress_count(p), before = p->told;
    uint64_t iterations = job->hold.scopes[GRADPOOL__WIRE__HOLD_SCOPE__HOLD_ROUNDS].now;
    p->told = now;
    pthread_mutex_unlock(&job->lock);
    if (now.rounds == before.rounds && now.waited_ns == before.waited_ns)
        return;
    double seconds = (double)(now.at_ns - before.at_ns) / NS_PER_S;
    log_info("job '%s' rank %u: %" PRIu64 " rounds in %" PRIu64 " iterations; since the previous "
             "line: %.1f rounds/s, %.1f MiB/s pushed, %.0f %% of the time waited",
             job->name, job->rank, now.rounds, iterations,
             (double)(now.rounds - before.rounds) / seconds,
             (double)(now.bytes - before.bytes) / MIB / seconds,
             100 * (double)(now.waited_ns - before.waited_ns) / NS_PER_S / seconds);
}
