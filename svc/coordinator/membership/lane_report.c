/* Reports of lanes: a job has failed there, or the connection to a worker has ended. Owns nothing.
 * A report is ignored if the lane has no pieces of the job. */
#include "svc/coordinator/membership/lane_report.h"

#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/session/session.h"

#include <errno.h>

static bool lane_carries(const struct lane *lane, const struct job *job)
{
    for (size_t i = 0; i < job->shares_count; i++)
        if (job->shares[i].lane == lane)
            return job->shares[i].pieces > 0;
    return false;
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
    jobs_fail(job, NULL, code, "%.200s (reported by lane %u of %s)",
              *said->text && text_is_plain(said->text) ? said->text : err_text(code), lane->id,
              AGGREGATOR_NAME(p->aggregator));
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
    bool stays = !job->terms->is_elastic || (said->may_return && session && session_is_in(session));
    if (session && stays)
        session_broken(session, lane->id);
    else if (session && session_is_in(session))
        session_cut_off(session, lane->id);
}
