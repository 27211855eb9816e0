/* Owns the rules by which the pool shrinks: lanes are emptied and parked, aggregators stop. Must
 * keep `lanes_min` lanes open, and must wait the hold time of each rule. RULES.md: G3, G5 to G9. */
#include "packer/growth/decision.h"
#include "packer/growth/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "packer/growth/plan.h"

#define NS_PER_S UINT64_C(1000000000)

/* --- down: a lane whose tasks fit elsewhere (G5) --- */

static bool is_drainable(const struct scale_look *look, size_t lane)
{
    const struct scale_lane *l = &look->seen->lanes[lane];
    return l->lane.state == PACKER_LANE_OPEN && !l->is_changing && look->lanes[lane].has_tasks &&
           !look->lanes[lane].is_held;
}

/* Returns the lane with the least load that may be drained, the last one of several such lanes;
 * lanes_count if there is none. */
static size_t emptiest(const struct scale_look *look, const bool *is_in_trial)
{
    size_t best = look->seen->lanes_count;
    for (size_t i = 0; i < look->seen->lanes_count; i++)
        if (is_drainable(look, i) && !is_in_trial[i] &&
            (best == look->seen->lanes_count || look->lanes[i].load <= look->lanes[best].load))
            best = i;
    return best;
}

static void drain(struct scale *scale, const struct scale_look *look, struct scale_plan *plan,
                  size_t lane, struct scale_decision *d)
{
    d->verb = SCALE_DRAIN;
    d->lane = look->seen->lanes[lane].lane.id;
    scale_take_moves(plan, d);
    scale->settle = SCALE_SETTLE_WINDOWS;
    snprintf(d->reason, sizeof d->reason,
             "lane %" PRIu32 " is emptied: for %" PRIu64
             " s the load of %zu lanes was low, %.2f now, and its tasks (%zu, bytes: %" PRIu64
             ") fit on other lanes, and every job stays one percentage point below its limit",
             d->lane, scale->low_ns / NS_PER_S, look->used, look->load, d->moves_count,
             plan->moved_bytes);
}

/* Returns 1 with a decision, 0 if no plan empties this lane, -ENOMEM. */
static int try_drain(struct scale *scale, const struct scale_look *look, size_t lane,
                     struct scale_decision *d)
{
    struct scale_plan plan;
    int error = scale_plan_init(&plan, look->seen, look->options.policy, SCALE_MARGIN_PPM);
    if (error == 0) {
        for (size_t i = 0; i < look->seen->lanes_count; i++)
            plan.targets[i] = is_drainable(look, i);
        error = scale_plan_empty(&plan, (uint32_t)lane);
    }
    if (error == 0 && plan.moved_bytes <= look->options.drain_bytes_max) {
        drain(scale, look, &plan, lane, d);
        error = 1;
    }
    scale_plan_fini(&plan);
    return error > 0 || error == -ENOMEM ? error : 0;
}

static bool may_drain(const struct scale *scale, const struct scale_look *look)
{
    bool helps = look->staying > look->options.lanes_min || look->short_of > 0;
    return helps && scale->settle == 0 && scale->low_ns >= look->options.drain_hold_ns &&
           look->coming == 0 && look->open == look->staying;
}

int scale_drain_emptiest(struct scale *scale, struct scale_look *look, struct scale_decision *d)
{
    int error = 0;
    if (!may_drain(scale, look))
        return 0;
    bool *is_in_trial = calloc(look->seen->lanes_count, sizeof *is_in_trial);
    if (!is_in_trial)
        return -ENOMEM;
    for (int i = 0; i < SCALE_TRIES && error == 0; i++) {
        size_t lane = emptiest(look, is_in_trial);
        if (lane == look->seen->lanes_count)
            break;
        is_in_trial[lane] = true;
        error = try_drain(scale, look, lane, d);
    }
    free(is_in_trial);
    if (error == 0)
        scale->low_ns =
            /* the time begins again, so that the next windows do not repeat the failed attempt */
            0;
    return error;
}

/* --- down: lanes and aggregators that are not used (G9) --- */

static void reverse(uint32_t *ids, size_t count)
{
    for (size_t i = 0; i < count / 2; i++) {
        uint32_t id = ids[i];
        ids[i] = ids[count - 1 - i];
        ids[count - 1 - i] = id;
    }
}

int scale_park_idle(struct scale *scale, struct scale_look *look, struct scale_decision *d)
{
    const struct scale_seen *seen = look->seen;
    if (scale->idle_lanes == 0 || scale->idle_ns < look->options.park_hold_ns)
        return 0;
    if (scale_name_lanes(d, scale->idle_lanes) < 0)
        return -ENOMEM;
    for (size_t i = seen->lanes_count; i-- > 0 && d->lanes_count < scale->idle_lanes;)
        if (seen->lanes[i].lane.state == PACKER_LANE_OPEN && !seen->lanes[i].is_changing &&
            !look->lanes[i].has_tasks)
            d->lanes[d->lanes_count++] = seen->lanes[i].lane.id;
    reverse(d->lanes, d->lanes_count);
    d->verb = SCALE_PARK;
    snprintf(d->reason, sizeof d->reason,
             "%zu of %zu open lanes park: for %" PRIu64 " s at least this many were not needed",
             d->lanes_count, look->open, scale->idle_ns / NS_PER_S);
    scale->idle_lanes = 0;
    return 1;
}

int scale_stop_unused(struct scale *scale, struct scale_look *look, struct scale_decision *d)
{
    const struct scale_seen *seen = look->seen;
    if (scale->stoppable == 0 || scale->stoppable_ns < look->options.stop_hold_ns)
        return 0;
    for (size_t i = seen->lanes_count; i-- > 0;) {
        if (seen->lanes[i].lane.state != PACKER_LANE_PARKED ||
            !scale_may_stop(seen, seen->lanes[i].aggregator))
            continue;
        d->verb = SCALE_STOP;
        d->aggregator = seen->lanes[i].aggregator;
        snprintf(d->reason, sizeof d->reason,
                 "aggregator %" PRIu32 " stops: for %" PRIu64
                 " s none of its lanes was open (aggregators in this state: %zu)",
                 d->aggregator, scale->stoppable_ns / NS_PER_S, scale->stoppable);
        scale->stoppable = 0;
        return 1;
    }
    return 0;
}
