/* Handles the coordinator's request to begin a stage in the tables of a lane. A lane that still has
 * work of the former stage answers -EAGAIN, and the coordinator repeats the request. */
#include "svc/aggregator/internal.h"
#include "svc/lane/rows/stage/stage.h"
#include "svc/wire/ranks.h"

#include <errno.h>
#include <string.h>

static int begin_stage(struct lane *lane, void *context)
{
    const Gradpool__Wire__LaneStageRequest *request = context;
    uint64_t ranks[RANKS_WORDS];
    memcpy(ranks, request->ranks.data, sizeof ranks);
    const struct lane_stage stage = {.number = request->number,
                                     .ranks = ranks,
                                     .first_clock = request->first_clock,
                                     .consistency = request->consistency,
                                     .staleness = request->staleness};
    return lane_begin_stage(lane, request->job_id, &stage);
}

int staging_serve(struct aggregator *a, uint64_t id, Gradpool__Wire__LaneStageRequest *request)
{
    bool is_sound = request->ranks.len == RANKS_WORDS * sizeof(uint64_t);
    return serve_reply(a, id,
                       is_sound ? serve_call(a, request->lane, begin_stage, request) : -EINVAL);
}
