/* Owns the rules by which the pool grows: lanes for waiting jobs, relief (a job above its loss
 * limit leaves its worst lane), and lanes for a job that was never measured alone. Must never open
 * more than `lanes_max` lanes (G3). RULES.md: G2 to G4, G8, G11. */
#include "packer/growth/decision.h"
#include "packer/growth/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "packer/growth/plan.h"

/* --- up: lanes for waiting jobs (G2) --- */

/* Returns the first lane in `state` that may open; lanes_count if there is none. */
static size_t first_closed(const struct scale_seen *seen, enum packer_lane_state state)
{
    size_t i = 0;
    while (i < seen->lanes_count &&
           !(scale_is_closed(&seen->lanes[i]) && seen->lanes[i].lane.state == state))
        i++;
    return i;
}

static void explain_opening(const struct scale_look *look, struct scale_decision *d)
{
    const char *verb =
        d->verb == SCALE_START ? "an aggregator starts, lanes to open" : "lanes to open";
    d->job = look->wished > 0 ? look->seen->wishes[0].job : 0;
    if (look->wished > 0)
        snprintf(d->reason, sizeof d->reason,
                 "%s: %zu; waiting: job %" PRIu64 "%s; lanes needed in all: %" PRIu64
                 "; lanes without a job: %zu",
                 verb, d->lanes_count, look->seen->wishes[0].job,
                 look->seen->wishes_count > 1 ? " and others" : "", look->wished, look->empty);
    else
        snprintf(d->reason, sizeof d->reason,
                 "%s: %zu; open: %zu, of these without a job: %zu; wanted are at least %" PRIu32
                 " open lanes, %" PRIu32 " of them without a job",
                 verb, d->lanes_count, look->staying, look->empty, look->options.lanes_min,
                 look->options.lanes_spare);
}

int scale_open_wanted(struct scale *scale, struct scale_look *look, struct scale_decision *d)
{
    const struct scale_seen *seen = look->seen;
    size_t most = look->short_of < look->room ? look->short_of : look->room;
    if (most == 0)
        return 0;
    size_t first = first_closed(seen, PACKER_LANE_PARKED);
    d->verb = first < seen->lanes_count ? SCALE_OPEN : SCALE_START;
    if (d->verb == SCALE_START)
        first = first_closed(seen, PACKER_LANE_UNSTARTED);
    d->aggregator = d->verb == SCALE_START ? seen->lanes[first].aggregator : 0;
    if (scale_name_lanes(d, most) < 0)
        return -ENOMEM;
    for (size_t i = first; i < seen->lanes_count && d->lanes_count < most; i++) {
        const struct scale_lane *lane = &seen->lanes[i];
        bool fits = d->verb == SCALE_OPEN || lane->aggregator == d->aggregator;
        if (scale_is_closed(lane) && lane->lane.state == seen->lanes[first].lane.state && fits)
            d->lanes[d->lanes_count++] = lane->lane.id;
    }
    explain_opening(look, d);
    return 1;
}

/* --- up: a job above its loss limit (G4) --- */

static uint32_t excess_ppm(const struct scale_job *job)
{
    return job->loss_ppm - packer_loss_limit_ppm(job->timing.loss_limit_ppm, 0, 0);
}

/* Returns whether job `a` leaves its worst lane before job `b` does. The job with fewer recent
 * reliefs comes first, because its relief is more likely to help; then the job furthest above its
 * limit. */
static bool is_worse(const struct scale_job *a, const struct scale_job *b)
{
    if (a->memory->reliefs != b->memory->reliefs)
        return a->memory->reliefs < b->memory->reliefs;
    return excess_ppm(a) > excess_ppm(b);
}

/* Returns the next job that should leave its worst lane, because it has been above its loss limit
 * for enough windows; jobs_count if there is none. */
static size_t worst_job(const struct scale_seen *seen)
{
    size_t worst = seen->jobs_count;
    for (size_t i = 0; i < seen->jobs_count; i++) {
        const struct scale_job *job = &seen->jobs[i];
        const struct scale_memory *m = job->memory;
        if (job->is_moving || job->is_ordered || !scale_is_over(job) ||
            m->over < SCALE_OVER_WINDOWS << m->reliefs)
            continue;
        if (worst == seen->jobs_count || is_worse(job, &seen->jobs[worst]))
            worst = i;
    }
    return worst;
}

/* Marks up to `room` closed lanes in `state` as targets. Returns `room` minus the number of marked
 * lanes. */
static size_t mark_closed_lanes(const struct scale_look *look, enum packer_lane_state state,
                                size_t room, bool *targets)
{
    const struct scale_seen *seen = look->seen;
    for (size_t i = 0; i < seen->lanes_count && room > 0; i++) {
        if (!scale_is_closed(&seen->lanes[i]) || seen->lanes[i].lane.state != state)
            continue;
        targets[i] = true;
        room--;
    }
    return room;
}

static void mark_relief_lanes(const struct scale_look *look, bool *targets)
{
    const struct scale_seen *seen = look->seen;
    for (size_t i = 0; i < seen->lanes_count; i++)
        targets[i] = seen->lanes[i].lane.state == PACKER_LANE_OPEN && !seen->lanes[i].is_changing &&
                     !look->lanes[i].is_avoided;
    size_t room = mark_closed_lanes(look, PACKER_LANE_PARKED, look->room, targets);
    mark_closed_lanes(look, PACKER_LANE_UNSTARTED, room, targets);
}

static bool is_target(const struct scale_plan *plan, uint32_t id)
{
    for (size_t i = 0; i < plan->moves_count; i++)
        if (plan->moves[i].target == id)
            return true;
    return false;
}

void scale_name_targets(const struct scale_plan *plan, enum packer_lane_state state,
                        struct scale_decision *d)
{
    for (size_t i = 0; i < plan->seen->lanes_count; i++) {
        const struct scale_lane *lane = &plan->seen->lanes[i];
        if (lane->lane.state != state || !is_target(plan, lane->lane.id))
            continue;
        if (d->lanes_count == 0)
            d->aggregator = lane->aggregator;
        if (state == PACKER_LANE_PARKED || lane->aggregator == d->aggregator)
            d->lanes[d->lanes_count++] = lane->lane.id;
    }
}

static void explain_relief(const struct scale_look *look, const struct scale_job *job,
                           uint32_t lane, struct scale_decision *d)
{
    uint32_t limit = packer_loss_limit_ppm(job->timing.loss_limit_ppm, 0, 0);
    snprintf(d->reason, sizeof d->reason,
             "job %" PRIu64 " has lost more than its limit in %" PRIu32 " windows in a row: "
             "loss %.1f %%, limit %.1f %%: %s",
             job->id, job->memory->over, job->loss_ppm / 1e4, limit / 1e4,
             d->verb == SCALE_START ? "its part of a shared lane needs another aggregator"
                                    : "its tasks on its worst lane go to other lanes");
    d->job = job->id;
    d->lane = look->seen->lanes[lane].lane.id;
}

/* Sets the number of windows above the limit to 0 for all jobs on the lane, because the move of one
 * job may help the other jobs, too. */
static void clear_windows(const struct scale_seen *seen, uint32_t lane)
{
    for (size_t i = 0; i < seen->tasks_count; i++)
        if (seen->tasks[i].lane == lane)
            seen->jobs[seen->tasks[i].job].memory->over = 0;
}

/* Moves the tasks of a job off its worst lane. If the aggregator of a target lane is not started,
 * the decision is to start this aggregator, and the job moves at its next relief. The start counts
 * as a relief, so a job that is sometimes above its limit starts aggregators less and less often
 * (G8). */
static int relieve(struct scale *scale, const struct scale_look *look, struct scale_plan *plan,
                   uint32_t job, uint32_t lane, struct scale_decision *d)
{
    struct scale_memory *memory = look->seen->jobs[job].memory;
    if (scale_name_lanes(d, plan->moves_count) < 0)
        return -ENOMEM;
    scale_name_targets(plan, PACKER_LANE_UNSTARTED, d);
    d->verb = d->lanes_count ? SCALE_START : SCALE_RELIEVE;
    explain_relief(look, &look->seen->jobs[job], lane, d);
    memory->reliefs += memory->reliefs < SCALE_RELIEFS_MAX;
    if (d->verb == SCALE_START)
        return 1;
    scale_name_targets(plan, PACKER_LANE_PARKED, d);
    scale_take_moves(plan, d);
    clear_windows(look->seen, lane);
    scale->settle = SCALE_SETTLE_WINDOWS;
    return 1;
}

/* Returns whether other jobs on the lanes cause the loss. If other jobs do not cause the loss, a
 * move to other lanes does not help. `rule`: predicted loss on the job's worst lane, 0 to 1. */
static bool is_explained(const struct scale_job *job, double rule)
{
    if (!job->is_shared_measured)
        return rule * SCALE_EXPLAINS >= job->loss_ppm / 1e6;
    return job->shared_ppm > packer_loss_limit_ppm(job->timing.loss_limit_ppm, 0, 0);
}

static uint32_t explained_ppm(const struct scale_job *job, double rule)
{
    return job->is_shared_measured ? job->shared_ppm : (uint32_t)(rule * 1e6);
}

/* Returns 1 with a decision; 0: no plan was found (memory->stay has the reason); -ENOMEM. */
static int try_relief(struct scale *scale, const struct scale_look *look, uint32_t job,
                      struct scale_decision *d)
{
    const struct scale_job *of = &look->seen->jobs[job];
    struct scale_plan plan;
    uint32_t lane;
    double loss = 0;
    enum scale_stay stay = SCALE_STAY_NO_LANE;
    int error = scale_plan_init(&plan, look->seen, look->options.policy, 0);
    if (error == 0)
        error = scale_plan_worst_lane(&plan, job, &lane, &loss);
    /* a job on fewer lanes than it needs loses time without other jobs, too (G12) */
    bool is_short = look->lanes_of[job] < of->lanes_enough;
    if (error != -ENOMEM && !is_explained(of, loss) && !is_short) {
        stay = SCALE_STAY_UNEXPLAINED;
        error = -ENOENT;
    }
    if (error == 0) {
        mark_relief_lanes(look, plan.targets);
        error = scale_plan_leave(&plan, job, lane);
    }
    if (error == 0)
        error = relieve(scale, look, &plan, job, lane, d);
    if (error != -ENOMEM) {
        of->memory->stay = error > 0 ? SCALE_STAY_NOT : stay;
        of->memory->explained_ppm = explained_ppm(of, loss);
    }
    scale_plan_fini(&plan);
    return error > 0 || error == -ENOMEM ? error : 0;
}

int scale_relieve_worst(struct scale *scale, struct scale_look *look, struct scale_decision *d)
{
    for (int i = 0; i < SCALE_TRIES && look->coming == 0; i++) {
        size_t job = worst_job(look->seen);
        if (job == look->seen->jobs_count)
            return 0;
        int error = try_relief(scale, look, (uint32_t)job, d);
        if (error != 0)
            return error;
        look->seen->jobs[job].memory->over = 0;
    }
    return 0;
}

/* --- up: a job that was never measured alone (G11) --- */

static bool any_job_is_measured(const struct scale_look *look)
{
    for (size_t i = 0; i < look->seen->jobs_count; i++)
        if (scale_is_measured_now(look, i))
            return true;
    return false;
}

/* Returns the next job to measure without other jobs; jobs_count if there is none. The job that was
 * moved least often for a measurement comes first, then the job that has been on shared lanes for
 * the longest time. */
static size_t next_to_measure(const struct scale_look *look)
{
    const struct scale_seen *seen = look->seen;
    size_t best = seen->jobs_count;
    for (size_t i = 0; i < seen->jobs_count; i++) {
        const struct scale_memory *m = seen->jobs[i].memory, *b;
        if (!seen->jobs[i].wants_alone || seen->jobs[i].is_ordered ||
            seen->jobs[i].timing.period_ns == 0 || m->shares < SCALE_OVER_WINDOWS << m->measures)
            continue;
        b = best < seen->jobs_count ? seen->jobs[best].memory : NULL;
        if (!b || m->measures < b->measures ||
            (m->measures == b->measures && m->shares > b->shares))
            best = i;
    }
    return best;
}

/* Marks lanes without another job as targets. Returns whether a lane was marked. */
static bool mark_empty_lanes(const struct scale_look *look, size_t job, bool *targets)
{
    const struct scale_seen *seen = look->seen;
    bool is_any = false;
    for (size_t i = 0; i < seen->lanes_count; i++) {
        const struct scale_look_lane *lane = &look->lanes[i];
        bool is_own = lane->owner == job && !lane->is_shared;
        targets[i] = seen->lanes[i].lane.state == PACKER_LANE_OPEN && !seen->lanes[i].is_changing &&
                     !seen->lanes[i].is_awaited && (!lane->has_tasks || is_own);
    }
    size_t room = mark_closed_lanes(look, PACKER_LANE_PARKED, look->room, targets);
    mark_closed_lanes(look, PACKER_LANE_UNSTARTED, room, targets);
    for (size_t i = 0; i < seen->lanes_count; i++)
        is_any |= targets[i];
    return is_any;
}

/* Plans moves of all tasks of the job from its shared lanes. */
static int leave_shared_lanes(const struct scale_look *look, struct scale_plan *plan, uint32_t job)
{
    const struct scale_seen *seen = look->seen;
    bool *is_left = calloc(seen->lanes_count, sizeof *is_left);
    int error = is_left ? 0 : -ENOMEM;
    for (size_t i = 0; i < seen->tasks_count && error == 0; i++) {
        uint32_t lane = seen->tasks[i].lane;
        if (seen->tasks[i].job != job || !look->lanes[lane].is_shared || is_left[lane])
            continue;
        is_left[lane] = true;
        error = seen->lanes[lane].is_changing ? -EBUSY : scale_plan_leave(plan, job, lane);
    }
    free(is_left);
    return error;
}

static int begin_measure(struct scale *scale, const struct scale_job *job, struct scale_plan *plan,
                         struct scale_decision *d)
{
    if (scale_name_lanes(d, plan->moves_count) < 0)
        return -ENOMEM;
    scale_name_targets(plan, PACKER_LANE_UNSTARTED, d);
    d->verb = d->lanes_count ? SCALE_START : SCALE_MEASURE;
    d->job = job->id;
    snprintf(d->reason, sizeof d->reason,
             "job %" PRIu64
             " was never measured without other jobs, and has shared lanes for %" PRIu32
             " windows: %s",
             job->id, job->memory->shares,
             d->verb == SCALE_START ? "an aggregator starts for this measurement"
                                    : "its tasks move to lanes without a job");
    job->memory->measures += job->memory->measures < SCALE_RELIEFS_MAX;
    job->memory->shares = 0;
    if (d->verb == SCALE_START)
        return 1;
    scale_name_targets(plan, PACKER_LANE_PARKED, d);
    scale_sort_moves(plan);
    scale_take_moves(plan, d);
    scale->settle = SCALE_SETTLE_WINDOWS;
    return 1;
}

int scale_measure_alone(struct scale *scale, struct scale_look *look, struct scale_decision *d)
{
    size_t job = next_to_measure(look);
    if (job == look->seen->jobs_count || look->coming > 0 || look->short_of > 0 ||
        scale->settle > 0 || any_job_is_measured(look))
        return 0;
    struct scale_plan plan;
    int error = scale_plan_init(&plan, look->seen, look->options.policy, 0);
    if (error == 0)
        error = mark_empty_lanes(look, job, plan.targets)
                    ? leave_shared_lanes(look, &plan, (uint32_t)job)
                    : -ENOSPC;
    if (error == 0)
        error = begin_measure(scale, &look->seen->jobs[job], &plan, d);
    else if (error != -ENOMEM)
        /* no plan was found; before the next attempt the job has to share lanes for the whole
         * number of windows again */
        look->seen->jobs[job].memory->shares = 0;
    scale_plan_fini(&plan);
    return error > 0 || error == -ENOMEM ? error : 0;
}
