/* Reports of lanes: a job has failed on the lane, or the connection to a worker has ended. A report
 * of a failure is ignored if the lane has no pieces of the job. Owns job_ranks.said.
 *
 * The connections of a dead process to lanes end before the coordinator can see the end of the
 * process. Other ranks may then end as well, and a lane may report the end of such a rank first. So
 * the report of a lost connection fails the job only after SAID_NS. If the coordinator sees the end
 * of a process earlier, this end fails the job, and the reason names the process that ended first
 * (session.c). */
#include "svc/coordinator/membership/lane_report.h"

#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/session/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define SAID_NS (50 * NS_PER_MS)

struct lane_said {
    struct job *job;
    struct timer timer;
    int code;
    char text[ERR_TEXT_BYTES];
};

static bool lane_carries(const struct lane *lane, const struct job *job)
{
    for (size_t i = 0; i < job->shares_count; i++)
        if (job->shares[i].lane == lane)
            return job->shares[i].pieces > 0;
    return false;
}

void lane_said_forget(struct job *job)
{
    if (job->ranks->said)
        timer_stop(&job->ranks->said->timer);
    free(job->ranks->said);
    job->ranks->said = NULL;
}

static void said_is_due(struct timer *timer)
{
    struct lane_said *said = container_of(timer, struct lane_said, timer);
    struct job *job = said->job;
    jobs_fail(job, NULL, said->code, "%s", said->text);
    lane_said_forget(job);
}

/* Fails the job at once or after SAID_NS. If several lanes report, the first report is used. */
static void job_fails_as_said(struct job *job, int code, const char *text)
{
    if (job->failure || job->ranks->said)
        return;
    struct lane_said *said = code == -ECONNRESET ? calloc(1, sizeof *said) : NULL;
    if (!said)
        return jobs_fail(job, NULL, code, "%s", text);
    *said = (struct lane_said){.job = job, .code = code};
    snprintf(said->text, sizeof said->text, "%s", text);
    timer_init(&said->timer, said_is_due);
    timer_start(job->service->loop, &said->timer, clock_now_ns() + SAID_NS);
    job->ranks->said = said;
}

void aggregator_handle_failure(struct peer *p, const envelope *message)
{
    const WIRE(LaneFailure) *said = message->lane_failure;
    struct lane *lane = lane_find(p->service, said->lane);
    struct job *job = jobs_find_id(p->service, said->job_id);
    if (!p->aggregator || !lane || lane->aggregator != p->aggregator || !job ||
        !lane_carries(lane, job))
        return;
    int code = said->code < 0 ? said->code : -ECONNRESET;
    char text[ERR_TEXT_BYTES];
    snprintf(text, sizeof text, "%.200s (reported by lane %u of %s)",
             *said->text && text_is_plain(said->text) ? said->text : err_text(code), lane->id,
             AGGREGATOR_NAME(p->aggregator));
    job_fails_as_said(job, code, text);
}

/* Returns whether the report is about a former worker of the rank, and must be ignored. A lane
 * without pieces of the job does not learn that the worker was removed, so the lane repeats its
 * report (K44). */
static bool said_of_former(const struct session *session, const WIRE(WorkerLost) * said)
{
    return session && session->entered != said->entered;
}

void members_handle_lost(struct peer *p, const envelope *message)
{
    const WIRE(WorkerLost) *said = message->worker_lost;
    struct lane *lane = lane_find(p->service, said->lane);
    struct job *job = jobs_find_id(p->service, said->job_id);
    if (!p->aggregator || !lane || lane->aggregator != p->aggregator || !job || job->failure ||
        said->rank >= job->workers || (job->terms->is_elastic && members_is_new(job, said->rank)))
        return;
    struct session *session = job->sessions[said->rank];
    if (said_of_former(session, said))
        return;
    bool stays = !job->terms->is_elastic || (said->may_return && session && session_is_in(session));
    if (session && stays)
        session_broken(session, lane->id);
    else if (session && session_is_in(session))
        session_cut_off(session, lane->id);
}
