/* When the bursts of a job come: from what its lanes tell to what the packer may count on. Owns
 * nothing but each share's `phase`. Must never compare clocks of different hosts, nor tell of a
 * phase of which nothing was heard lately (K36). */
#include "svc/coordinator/placement/phase.h"

#include "svc/coordinator/measure/measure.h"
#include "svc/coordinator/service.h"

#define STALE_ROUNDS 3 /* and as many looks without news, and nobody knows when it goes on */

/* The kernel has told us which process it is, so it runs on this host, and has its clock. */
static bool has_our_clock(const struct lane *lane) { return lane->aggregator->process.fd >= 0; }

void phases_take(struct share *share, const WIRE(JobUse) * use, uint64_t span_ns)
{
    phase_take(&share->phase, has_our_clock(share->lane) ? use->round_begun_ns : 0, span_ns);
}

/* Of a lane whose clock is another it is known only that it was over by now. */
void phases_take_first(struct job *job, const struct share *share, const WIRE(JobUse) * use)
{
    bool is_ours = has_our_clock(share->lane);
    uint64_t done_ns = is_ours ? use->first_done_ns : clock_now_ns();
    if (use->first_done_ns == 0 || job->figures->arrived_ns == 0 ||
        done_ns <= job->figures->arrived_ns)
        return;
    uint64_t feedback_ns = done_ns - job->figures->arrived_ns;
    if (job->figures->feedback_ns == 0 || (is_ours && feedback_ns < job->figures->feedback_ns))
        job->figures->feedback_ns = feedback_ns;
}

static bool is_stale(const struct job *job, uint64_t period_ns, uint64_t now_ns)
{
    uint64_t look_ns = job->service->options->measure_ns;
    uint64_t each_ns = period_ns + (look_ns ? look_ns : MEASURE_NS);
    return now_ns - job->figures->trained_ns > STALE_ROUNDS * each_ns;
}

/* A lane that does not tell might see its bursts at any time. */
struct phase_burst job_phase(const struct job *job)
{
    const struct phase_burst none = {0};
    uint64_t period_ns = job->profile->now.period_ns, now_ns = clock_now_ns();
    struct phase_burst all = none;
    if (period_ns == 0 || is_stale(job, period_ns, now_ns))
        return none;
    for (size_t i = 0; i < job->shares_count; i++) {
        if (job->shares[i].pieces == 0)
            continue;
        struct phase_burst one = phase_find(&job->shares[i].phase, period_ns);
        all = all.window_ns ? phase_join(&all, &one) : one;
        if (all.window_ns == 0)
            return none;
    }
    all.begun_ns = phase_offset_ns(&all, now_ns);
    return all;
}
