/* The rest of a job: its workers sleep between two steps (SL20 of svc/coordinator/slots). The
 * record of a step names the rest, so all ranks sleep before the same step, and no round is
 * open. */
#include "client/lib/link/link.h"
#include "client/lib/session/process.h"
#include "client/lib/steps/internal.h"
#include "svc/base/clock.h"

#define REST_LOOK_NS (3600 * NS_PER_S) /* a sleep is divided into parts of this length */

static bool rest_is_over(const struct gp_job *job)
{
    return job->failure.code || job->steps->rest->newest > job->steps->rest->recorded;
}

static bool rest_has_news(void *context)
{
    const struct gp_job *job = context;
    return rest_is_over(job) || job->steps->rest->must_say;
}

/* Informs the coordinator that this rank sleeps; the coordinator then gives the slot to another
 * worker. Without an answer, the next message about the membership repeats the request. */
static void rest_say(struct gp_job *job)
{
    const uint64_t deadline_ns = clock_now_ns() + job->client->timeout_ns;
    uint32_t rest = job->steps->rest->recorded;
    struct err ignored;
    job->steps->rest->must_say = false;
    pthread_mutex_unlock(&job->lock);
    (void)control_ask(job->control, &MESSAGE(0, RESTING_REQUEST, resting_request, .rest = rest),
                      deadline_ns, &ignored);
    pthread_mutex_lock(&job->lock);
}

bool steps_rest(struct gp_job *job)
{
    if (job->steps->rest->recorded == 0 || rest_is_over(job))
        return false;
    job->steps->rest->must_say = true;
    while (!rest_is_over(job)) {
        if (job->steps->rest->must_say)
            rest_say(job);
        (void)engine_run(&job->engine, clock_now_ns() + REST_LOOK_NS, rest_has_news, job);
    }
    return true;
}

void steps_hear_rest(struct gp_job *job, uint32_t rest)
{
    if (!job->steps)
        return;
    if (rest > job->steps->rest->newest)
        job->steps->rest->newest = rest;
    job->steps->rest->must_say = true;
}
