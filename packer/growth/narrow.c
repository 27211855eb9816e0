/* Owns the trials with fewer lanes: a job without other jobs on its lanes is moved to fewer lanes.
 * If these lanes are too few, the job is moved back to more lanes. The profile stores the result of
 * a trial (R10). Must never change a lane with another job. RULES.md: G12. */
#include "packer/growth/decision.h"
#include "packer/growth/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "packer/growth/plan.h"

/* --- the next job, and its number of lanes --- */

/* Returns the number of lanes that the job should have; 0: the job stays on its lanes. */
static uint32_t lanes_wanted(const struct scale_look *look, size_t job)
{
    const struct scale_job *of = &look->seen->jobs[job];
    uint32_t now = look->lanes_of[job];
    if (of->is_moving || of->is_ordered || of->timing.period_ns == 0 || of->lanes_enough == 0 ||
        now == 0 || look->shares[job] || now == of->lanes_next)
        return 0;
    if (of->lanes_next > 0)
        return of->lanes_next;
    return now < of->lanes_enough ? of->lanes_enough : 0;
}

/* Returns whether no decision in progress opens, drains or fills a lane of the job. */
static bool owns_quiet_lanes(const struct scale_look *look, size_t job)
{
    for (size_t i = 0; i < look->seen->lanes_count; i++)
        if (look->lanes[i].owner == job &&
            (look->seen->lanes[i].is_changing || look->seen->lanes[i].is_awaited))
            return false;
    return true;
}

/* Returns whether a trial may begin: the conditions are those of a drain (G5). */
static bool may_begin(const struct scale *scale, const struct scale_look *look)
{
    bool helps = look->staying > look->options.lanes_min || look->short_of > 0;
    return helps && scale->low_ns >= look->options.drain_hold_ns && look->coming == 0 &&
           look->open == look->staying;
}

/* Returns whether the job may change to `wanted` lanes. A change to fewer lanes requires that a
 * trial is in progress or may begin. A change to more lanes requires that a trial is in progress or
 * the job is above its loss limit, because a drain may have left the job too few lanes. */
static bool may_go(const struct scale *scale, const struct scale_look *look, size_t job,
                   uint32_t wanted)
{
    const struct scale_job *of = &look->seen->jobs[job];
    bool is_in_trial = of->memory->narrowed > 0;
    if (wanted > look->lanes_of[job])
        return is_in_trial || scale_is_over(of);
    return is_in_trial || may_begin(scale, look);
}

/* Returns the next job whose number of lanes should change; jobs_count if there is none. Jobs with
 * too few lanes come before jobs with too many lanes. */
static size_t next_to_try(const struct scale *scale, const struct scale_look *look)
{
    size_t best = look->seen->jobs_count;
    for (size_t i = 0; i < look->seen->jobs_count; i++) {
        uint32_t wanted = lanes_wanted(look, i);
        if (wanted == 0 || look->seen->jobs[i].memory->narrow_wait > 0 ||
            !may_go(scale, look, i, wanted) || !owns_quiet_lanes(look, i))
            continue;
        if (wanted > look->lanes_of[i])
            return i;
        if (best == look->seen->jobs_count)
            best = i;
    }
    return best;
}

/* --- fewer --- */

static uint64_t bytes_on(const struct scale_plan *plan, size_t job, size_t lane)
{
    for (size_t i = 0; i < plan->parts_count; i++)
        if (plan->parts[i].job == job && plan->parts[i].lane == lane)
            return plan->parts[i].bytes;
    return 0;
}

/* Chooses the `wanted` lanes with most bytes of the job as targets; of equal lanes the first. */
static void aim_fewer(const struct scale_look *look, struct scale_plan *plan, size_t job,
                      uint32_t wanted)
{
    for (uint32_t kept = 0; kept < wanted; kept++) {
        size_t best = SIZE_MAX;
        for (size_t i = 0; i < look->seen->lanes_count; i++)
            if (look->lanes[i].owner == job && !plan->targets[i] &&
                (best == SIZE_MAX || bytes_on(plan, job, i) > bytes_on(plan, job, best)))
                best = i;
        if (best != SIZE_MAX)
            plan->targets[best] = true;
    }
}

static int plan_fewer(const struct scale_look *look, struct scale_plan *plan, size_t job,
                      uint32_t wanted)
{
    int error = 0;
    aim_fewer(look, plan, job, wanted);
    for (uint32_t i = 0; i < look->seen->lanes_count && error == 0; i++)
        if (look->lanes[i].owner == job && !plan->targets[i])
            error = scale_plan_leave(plan, (uint32_t)job, i);
    return error;
}

/* --- more --- */

static bool is_free(const struct scale_look *look, size_t lane, enum packer_lane_state state)
{
    const struct scale_lane *l = &look->seen->lanes[lane];
    if (state == PACKER_LANE_OPEN)
        return l->lane.state == state && !l->is_changing && !look->lanes[lane].has_tasks;
    return l->lane.state == state && scale_is_closed(l);
}

/* Returns the number of lanes in `state` without a job, minus the lanes that are reserved for
 * waiting jobs and by lanes_spare (G2). */
static size_t free_lanes(const struct scale_look *look, enum packer_lane_state state)
{
    uint64_t kept = look->wished + look->options.lanes_spare;
    if (state == PACKER_LANE_OPEN)
        return look->empty > kept ? look->empty - (size_t)kept : 0;
    return look->room > look->short_of ? look->room - look->short_of : 0;
}

/* Marks up to `wanted` free lanes as targets. Returns the number of marked lanes. */
static uint32_t aim_free(const struct scale_look *look, enum packer_lane_state state,
                         uint32_t wanted, bool *targets)
{
    size_t most = free_lanes(look, state);
    uint32_t found = 0;
    for (size_t i = 0; i < look->seen->lanes_count && found < wanted && found < most; i++) {
        if (!is_free(look, i, state))
            continue;
        targets[i] = true;
        found++;
    }
    return found;
}

static int plan_more(const struct scale_look *look, struct scale_plan *plan, size_t job,
                     uint32_t wanted)
{
    uint32_t now = look->lanes_of[job], more = wanted - now;
    uint32_t found = aim_free(look, PACKER_LANE_OPEN, more, plan->targets);
    uint64_t bytes = 0;
    found += aim_free(look, PACKER_LANE_PARKED, more - found, plan->targets);
    int error = found > 0 ? 0 : -ENOSPC;
    for (size_t i = 0; i < look->seen->lanes_count; i++)
        bytes += look->lanes[i].owner == job ? bytes_on(plan, job, i) : 0;
    for (uint32_t i = 0; i < look->seen->lanes_count && error == 0; i++)
        if (look->lanes[i].owner == job)
            error = scale_plan_leave_beyond(plan, (uint32_t)job, i, bytes / (now + found));
    return error == 0 && plan->moves_count == 0 ? -ENOSPC : error;
}

/* --- the decision --- */

/* Records an attempt to change the number of lanes. Each failed attempt doubles the number of
 * windows before the next attempt, so that a job whose attempts always fail does not block other
 * jobs. */
static void record_attempt(struct scale_memory *memory, uint32_t wanted)
{
    memory->narrow_to = wanted;
    memory->narrow_wait = SCALE_OVER_WINDOWS << memory->narrow_fails;
    memory->narrow_fails += memory->narrow_fails < SCALE_RELIEFS_MAX;
}

static int move(struct scale *scale, const struct scale_job *job, uint32_t now, uint32_t wanted,
                struct scale_plan *plan, struct scale_decision *d)
{
    if (scale_name_lanes(d, plan->moves_count) < 0)
        return -ENOMEM;
    scale_name_targets(plan, PACKER_LANE_PARKED, d);
    d->verb = SCALE_NARROW;
    d->job = job->id;
    scale_sort_moves(plan);
    scale_take_moves(plan, d);
    snprintf(d->reason, sizeof d->reason,
             "job %" PRIu64 " %s: the job is alone on %" PRIu32 " lanes, and moves to %" PRIu32
             " (tasks: %zu, bytes: %" PRIu64 ")",
             job->id, wanted < now ? "is tried on fewer lanes" : "needs more lanes than it has",
             now, wanted, d->moves_count, plan->moved_bytes);
    /* A change to more lanes counts as a relief, which delays drains (G8). Otherwise a drain could
     * at once move the job back to too few lanes. */
    if (job->memory->narrowed == 0 && wanted > now)
        job->memory->reliefs += job->memory->reliefs < SCALE_RELIEFS_MAX;
    job->memory->narrowed = 1;
    scale->settle = SCALE_SETTLE_WINDOWS;
    return 1;
}

/* Returns 1 with the decision to start an aggregator that has free lanes for the job; 0: there is
 * no such aggregator, or other lanes are opening; -ENOMEM. */
static int start(const struct scale_look *look, const struct scale_job *job, uint32_t now,
                 uint32_t wanted, struct scale_decision *d)
{
    size_t most = free_lanes(look, PACKER_LANE_UNSTARTED);
    if (scale_name_lanes(d, look->seen->lanes_count) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < look->seen->lanes_count && d->lanes_count < wanted - now; i++) {
        const struct scale_lane *lane = &look->seen->lanes[i];
        if (!is_free(look, i, PACKER_LANE_UNSTARTED) || d->lanes_count == most)
            continue;
        if (d->lanes_count == 0)
            d->aggregator = lane->aggregator;
        if (lane->aggregator == d->aggregator)
            d->lanes[d->lanes_count++] = lane->lane.id;
    }
    if (d->lanes_count == 0 || look->coming > 0) {
        scale_decision_fini(d);
        return 0;
    }
    d->verb = SCALE_START;
    d->job = job->id;
    snprintf(d->reason, sizeof d->reason,
             "job %" PRIu64 " needs more lanes than it has, %" PRIu32 " for %" PRIu32
             ": an aggregator starts, lanes to open: %zu",
             job->id, wanted, now, d->lanes_count);
    return 1;
}

/* Returns 1 with a decision; 0: no plan for this job was found; -ENOMEM. */
static int try_job(struct scale *scale, const struct scale_look *look, size_t job,
                   struct scale_decision *d)
{
    const struct scale_job *of = &look->seen->jobs[job];
    uint32_t now = look->lanes_of[job], wanted = lanes_wanted(look, job);
    struct scale_plan plan;
    int error = scale_plan_init(&plan, look->seen, look->options.policy, 0);
    plan.is_even = true;
    if (error == 0)
        error = wanted < now ? plan_fewer(look, &plan, job, wanted)
                             : plan_more(look, &plan, job, wanted);
    if (error == 0 && plan.moved_bytes > look->options.drain_bytes_max)
        error = -ENOSPC;
    record_attempt(of->memory, wanted);
    if (error == 0)
        error = move(scale, of, now, wanted, &plan, d);
    else if (error != -ENOMEM && wanted > now)
        error = start(look, of, now, wanted, d);
    scale_plan_fini(&plan);
    return error > 0 || error == -ENOMEM ? error : 0;
}

int scale_narrow(struct scale *scale, struct scale_look *look, struct scale_decision *d)
{
    int error = 0;
    for (int i = 0; i < SCALE_TRIES && scale->settle == 0 && error == 0; i++) {
        size_t job = next_to_try(scale, look);
        if (job == look->seen->jobs_count)
            return 0;
        error = try_job(scale, look, job, d);
    }
    return error;
}
