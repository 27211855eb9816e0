/* Sends lists of ranks that are gone, as releases without pieces. A lane ignores ranks that it has
 * dropped before, so a repeated list changes nothing. */
#include "svc/coordinator/table/ranks.h"

#include "svc/base/log.h"
#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/service.h"

struct ranks_told {
    uint32_t job, lane;
};

/* A lane that has not answered gets the list again: with the next rank that is gone, or when its
 * aggregator is back. */
static void ranks_answered(struct service *s, void *data, const envelope *reply, int code,
                           const char *text)
{
    const struct ranks_told *told = data;
    const struct job *job = jobs_find_id(s, told->job);
    if (!reply && job)
        log_warn("job %s: lane %u has not confirmed the list of ranks that are gone: %s; see the "
                 "log of its aggregator",
                 job->name, told->lane, text);
}

static void ranks_send(struct job *job, struct lane *lane, uint64_t *gone)
{
    const struct ranks_told told = {job->id, lane->id};
    if (lane->aggregator->state != AGGREGATOR_UP)
        return;
    if (lane_call(lane, ranks_answered, &told, sizeof told, RELEASE_REQUEST, release_request,
                  .job_id = job->id,
                  .gone = {TERMS_RANK_WORDS * sizeof *gone, (uint8_t *)gone}) < 0)
        log_error("job %s: gradpool serve has no memory to send lane %u the list of ranks that are "
                  "gone; raise its memory limit",
                  job->name, lane->id);
}

/* Returns whether any rank is gone. A regrouping removes a rank from tensors first, and then tells
 * all lanes of the job. */
static bool ranks_find_gone(const struct job *job, uint64_t *ret_gone)
{
    bool has_gone = false;
    for (uint32_t rank = 0; job->terms->is_elastic && rank < job->workers; rank++) {
        if (!members_is_gone(job, rank) || members_is_leaving(job, rank))
            continue;
        ranks_add(ret_gone, rank);
        has_gone = true;
    }
    return has_gone;
}

void shards_forget_ranks_on(struct job *job, struct lane *lane)
{
    uint64_t gone[TERMS_RANK_WORDS] = {0};
    if (!job->failure && ranks_find_gone(job, gone))
        ranks_send(job, lane, gone);
}

void shards_forget_ranks(struct job *job)
{
    uint64_t gone[TERMS_RANK_WORDS] = {0};
    if (job->failure || !ranks_find_gone(job, gone))
        return;
    for (size_t i = 0; i < job->shares_count; i++)
        if (job_table_on(job, job->shares[i].lane))
            ranks_send(job, job->shares[i].lane, gone);
}
