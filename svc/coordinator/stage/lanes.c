/* Sends the members of a stage to the lanes with tables of the job. A lane refuses with -EAGAIN
 * while it has work of the former stage, and an aggregator may be disconnected. Such requests are
 * repeated until the job ends or fails. Each rank waits at most until its own deadline. */
#include "svc/base/log.h"
#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/job/claim.h"
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/job/table.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/stage/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REPEAT_NS (2 * NS_PER_MS)

struct stage_asked {
    uint32_t job, lane;
    uint64_t number;
};

static struct stage_lane *lane_entry(struct stages *s, uint32_t lane)
{
    for (size_t i = 0; i < s->lanes_count; i++)
        if (s->lanes[i].lane == lane)
            return &s->lanes[i];
    return NULL;
}

static void repeat_later(struct stages *s)
{
    timer_start(s->job->service->loop, &s->timer, clock_now_ns() + REPEAT_NS);
}

static void stage_lane_answered(struct service *service, void *data, const envelope *reply,
                                int code, const char *text)
{
    const struct stage_asked *asked = data;
    struct job *job = jobs_find_id(service, asked->job);
    struct stages *s = job ? job->ranks->stages : NULL;
    struct stage_lane *entry = s && s->number == asked->number ? lane_entry(s, asked->lane) : NULL;
    if (!entry || entry->state != STAGE_LANE_ASKED)
        return;
    bool is_repeated = !reply && (code == -EAGAIN || call_went_unanswered(code));
    entry->state = reply ? STAGE_LANE_TOLD : STAGE_LANE_DUE;
    if (reply)
        stages_tell_lanes(s);
    else if (is_repeated)
        repeat_later(s);
    else if (code != -ECONNABORTED) /* -ECONNABORTED: the lane itself reports the failed job */
        jobs_fail(job, NULL, code,
                  "stage '%s' of job %.127s: lane %u did not take its members: %s; see the log of "
                  "its aggregator",
                  s->terms->name, job->name, asked->lane, text);
}

static void stage_send_to_lane(struct stages *s, struct stage_lane *entry)
{
    struct job *job = s->job;
    struct lane *lane = lane_find(job->service, entry->lane);
    const struct stage_asked asked = {job->id, entry->lane, s->number};
    if (!lane || !job_table_on(job, lane)) {
        entry->state = STAGE_LANE_TOLD; /* the tables with shards on this lane have failed */
        return;
    }
    if (lane->aggregator->state != AGGREGATOR_UP)
        return repeat_later(s);
    int error = lane_call(lane, stage_lane_answered, &asked, sizeof asked, LANE_STAGE_REQUEST,
                          lane_stage_request, .job_id = job->id, .number = s->number,
                          .ranks = {sizeof s->members, (uint8_t *)s->members},
                          .first_clock = s->first_clock, .consistency = s->terms->consistency,
                          .staleness = s->terms->staleness);
    if (error < 0)
        return repeat_later(s);
    entry->state = STAGE_LANE_ASKED;
}

bool stage_message(const struct job *job, uint64_t *ret_ranks, WIRE(LaneStageRequest) * ret_stage)
{
    const struct stages *s = job->ranks->stages;
    if (!s || s->number == 0)
        return false;
    memcpy(ret_ranks, s->members, sizeof s->members);
    *ret_stage = MESSAGE_PART(
        LaneStageRequest, lane_stage_request, .job_id = job->id, .number = s->number,
        .ranks = {sizeof s->members, (uint8_t *)ret_ranks}, .first_clock = s->first_clock,
        .consistency = s->terms->consistency, .staleness = s->terms->staleness);
    return true;
}

/* Lists the lanes again, because the lanes of shards may have changed since the last stage. */
static int list_lanes(struct stages *s)
{
    struct job *job = s->job;
    free(s->lanes);
    s->lanes_count = 0;
    s->lanes = calloc(job->shares_count + 1, sizeof *s->lanes);
    if (!s->lanes)
        return -ENOMEM;
    for (size_t i = 0; i < job->shares_count; i++)
        if (job_table_on(job, job->shares[i].lane))
            s->lanes[s->lanes_count++].lane = job->shares[i].lane->id;
    return 0;
}

void stages_end_telling(struct stages *s)
{
    timer_stop(&s->timer);
    free(s->lanes);
    s->lanes = NULL;
    s->lanes_count = 0;
    s->is_told = true;
    stages_told(s);
}

/* Returns whether each tensor that follows the stages is regrouped: its rounds need exactly the
 * members of the stage, and its lanes serve all pieces. */
static bool has_regrouped(const struct stages *s)
{
    if (job_has_claim(s->job, CLAIM_REGROUP))
        return false;
    job_each_tensor (tensor, s->job) {
        if (tensor->failure || !members_follow_stage(tensor))
            continue;
        if (memcmp(tensor->members, s->members, sizeof s->members) != 0)
            return false;
        tensor_each_piece (piece, tensor)
            if (piece->state != PIECE_READY)
                return false;
    }
    return true;
}

void stages_tell_lanes(struct stages *s)
{
    bool is_told = true;
    if (s->is_told || s->job->failure)
        return;
    s->job->service->on->job->may_regroup(s->job);
    if (s->is_told || s->job->failure)
        return; /* the regrouping has ended, and has called this function itself */
    if (!s->lanes && list_lanes(s) < 0)
        return repeat_later(s);
    for (size_t i = 0; i < s->lanes_count; i++) {
        if (s->lanes[i].state == STAGE_LANE_DUE)
            stage_send_to_lane(s, &s->lanes[i]);
        is_told &= s->lanes[i].state == STAGE_LANE_TOLD;
    }
    if (is_told && has_regrouped(s))
        stages_end_telling(s);
}
