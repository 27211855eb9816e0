/* Counts the lanes of one window: used, empty, missing and surplus lanes. Stores nothing between
 * windows and decides nothing. RULES.md: G2 to G6. */
#include "packer/growth/look.h"

#include <errno.h>
#include <stdlib.h>

#define NS_PER_S UINT64_C(1000000000)
#define MILLION 1e6

/* --- checks of the input --- */

static bool lanes_make_sense(const struct scale_seen *seen)
{
    for (size_t i = 1; i < seen->lanes_count; i++)
        if (seen->lanes[i].lane.id <= seen->lanes[i - 1].lane.id)
            return false;
    for (size_t i = 0; i < seen->lanes_count && seen->nodes_count > 0; i++)
        if (seen->lanes[i].lane.node >= seen->nodes_count)
            return false;
    return seen->lanes_count < UINT32_MAX;
}

static bool jobs_make_sense(const struct scale_seen *seen)
{
    for (size_t i = 0; i < seen->jobs_count; i++)
        if (!seen->jobs[i].memory || seen->jobs[i].timing.period_ns > PACKER_PERIOD_NS_MAX)
            return false;
    return true;
}

static bool tasks_make_sense(const struct scale_seen *seen)
{
    for (size_t i = 0; i < seen->tasks_count; i++) {
        const struct scale_task *task = &seen->tasks[i];
        if (task->job >= seen->jobs_count || task->lane >= seen->lanes_count ||
            seen->lanes[task->lane].lane.state != PACKER_LANE_OPEN)
            return false;
    }
    return seen->tasks_count < UINT32_MAX;
}

/* --- options --- */

static void set_default(uint64_t *value, uint64_t otherwise)
{
    *value = *value ? *value : otherwise;
}

static struct scale_options with_defaults(const struct scale_options *options)
{
    struct scale_options o = *options;
    o.policy = o.policy ? o.policy : "shared";
    o.lanes_min = o.lanes_min ? o.lanes_min : 1;
    o.lanes_max = o.lanes_max ? o.lanes_max : UINT32_MAX;
    o.low_ppm = o.low_ppm ? o.low_ppm : SCALE_LOW_PPM;
    set_default(&o.drain_hold_ns, 30 * NS_PER_S);
    set_default(&o.park_hold_ns, 10 * NS_PER_S);
    set_default(&o.stop_hold_ns, 300 * NS_PER_S);
    set_default(&o.drain_bytes_max, UINT64_C(4) << 30);
    return o;
}

/* --- jobs and lanes --- */

bool scale_is_over(const struct scale_job *job)
{
    return job->timing.period_ns > 0 &&
           job->loss_ppm > packer_loss_limit_ppm(job->timing.loss_limit_ppm, 0, 0);
}

/* Returns whether the job has been within its loss limit for long enough after its last relief,
 * so that its lanes may be drained again (G8). */
static bool may_be_drained(const struct scale_memory *memory)
{
    return memory->reliefs == 0 || memory->within >= SCALE_WITHIN_WINDOWS << memory->reliefs;
}

bool scale_is_closed(const struct scale_lane *lane)
{
    return lane->lane.state != PACKER_LANE_OPEN && !lane->is_changing;
}

/* Sets the owner and is_shared of each lane, and the number of lanes of each job. */
static void count_jobs_of_lanes(struct scale_look *look)
{
    const struct scale_seen *seen = look->seen;
    for (size_t i = 0; i < seen->lanes_count; i++)
        look->lanes[i].owner = UINT32_MAX;
    for (size_t i = 0; i < seen->tasks_count; i++) {
        struct scale_look_lane *lane = &look->lanes[seen->tasks[i].lane];
        lane->is_shared |= lane->owner != UINT32_MAX && lane->owner != seen->tasks[i].job;
        look->lanes_of[seen->tasks[i].job] += lane->owner != seen->tasks[i].job;
        lane->owner = seen->tasks[i].job;
    }
    for (size_t i = 0; i < seen->tasks_count; i++)
        look->shares[seen->tasks[i].job] |= look->lanes[seen->tasks[i].lane].is_shared;
}

bool scale_is_measured_now(const struct scale_look *look, size_t job)
{
    const struct scale_job *of = &look->seen->jobs[job];
    return of->wants_alone && !of->is_moving && !look->shares[job] &&
           of->memory->alone < SCALE_ALONE_WINDOWS;
}

bool scale_is_narrowed_now(const struct scale_look *look, size_t job)
{
    uint32_t narrowed = look->seen->jobs[job].memory->narrowed;
    return !look->shares[job] && narrowed > 0 && narrowed < SCALE_ALONE_WINDOWS;
}

static void count_tasks(struct scale_look *look)
{
    const struct scale_seen *seen = look->seen;
    for (size_t i = 0; i < seen->lanes_count; i++)
        look->lanes[i].has_tasks = look->lanes[i].is_held = seen->lanes[i].is_awaited;
    for (size_t i = 0; i < seen->tasks_count; i++) {
        const struct scale_task *task = &seen->tasks[i];
        const struct scale_job *job = &seen->jobs[task->job];
        struct scale_look_lane *lane = &look->lanes[task->lane];
        bool is_in_trial = scale_is_narrowed_now(look, task->job);
        bool is_avoided = job->is_moving || scale_is_over(job) || is_in_trial;
        lane->has_tasks = true;
        lane->is_avoided = lane->is_avoided || is_avoided;
        if (is_avoided || job->is_ordered || job->timing.period_ns == 0 ||
            !may_be_drained(job->memory) || scale_is_measured_now(look, task->job))
            lane->is_held = true;
        if (job->timing.period_ns > 0)
            lane->load += (double)task->lane_ns / (double)job->timing.period_ns;
    }
}

static void count_lane(struct scale_look *look, size_t position)
{
    const struct scale_lane *lane = &look->seen->lanes[position];
    const struct scale_look_lane *l = &look->lanes[position];
    double measured = (double)lane->lane.load_ppm / MILLION;
    bool is_open = lane->lane.state == PACKER_LANE_OPEN, stays = is_open && !lane->is_changing;
    look->open += is_open;
    look->coming += !is_open && lane->is_changing;
    look->staying += stays;
    look->used += stays && l->has_tasks;
    look->empty += stays && !l->has_tasks;
    if (stays && l->has_tasks)
        look->load += measured > l->load ? measured : l->load;
}

/* --- lanes too few, lanes too many --- */

static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static void count_wishes(struct scale_look *look)
{
    for (size_t i = 0; i < look->seen->wishes_count; i++)
        look->wished += look->seen->wishes[i].lanes;
}

/* Computes the fields short_of, room and surplus (G2, G3). */
static void balance(struct scale_look *look)
{
    const struct scale_options *o = &look->options;
    uint64_t kept = look->wished + o->lanes_spare, closed = 0;
    for (size_t i = 0; i < look->seen->lanes_count; i++)
        closed += scale_is_closed(&look->seen->lanes[i]);
    uint64_t floor = less(o->lanes_min, look->staying + look->coming);
    uint64_t without_job = less(kept, look->empty + look->coming);
    look->short_of = floor > without_job ? floor : without_job;
    look->room = least(less(o->lanes_max, look->open + look->coming), closed);
    uint64_t surplus = less(look->empty + look->coming, kept);
    look->surplus = least(least(surplus, look->empty), less(look->staying, o->lanes_min));
}

bool scale_may_stop(const struct scale_seen *seen, uint32_t aggregator)
{
    bool runs = false;
    for (size_t i = 0; i < seen->lanes_count; i++) {
        const struct scale_lane *lane = &seen->lanes[i];
        if (lane->aggregator != aggregator)
            continue;
        if (lane->lane.state == PACKER_LANE_OPEN || lane->is_changing || lane->is_kept)
            return false;
        runs = runs || lane->lane.state == PACKER_LANE_PARKED;
    }
    return runs;
}

/* Counts aggregators that may stop. The lanes of one aggregator are adjacent in `lanes`. */
static void count_stoppable(struct scale_look *look)
{
    const struct scale_seen *seen = look->seen;
    bool runs = false, rests = true;
    for (size_t i = 0; i < seen->lanes_count; i++) {
        const struct scale_lane *lane = &seen->lanes[i];
        runs = runs || lane->lane.state == PACKER_LANE_PARKED;
        rests =
            rests && lane->lane.state != PACKER_LANE_OPEN && !lane->is_changing && !lane->is_kept;
        if (i + 1 < seen->lanes_count && seen->lanes[i + 1].aggregator == lane->aggregator)
            continue;
        look->stoppable += runs && rests;
        runs = false;
        rests = true;
    }
}

int scale_look_init(struct scale_look *look, const struct scale_options *options,
                    const struct scale_seen *seen)
{
    *look = (struct scale_look){.seen = seen, .options = with_defaults(options)};
    if (!lanes_make_sense(seen) || !jobs_make_sense(seen) || !tasks_make_sense(seen) ||
        packer_losses(look->options.policy, NULL, 0, NULL) < 0)
        return -EINVAL;
    look->lanes = calloc(seen->lanes_count + 1, sizeof *look->lanes);
    look->shares = calloc(seen->jobs_count + 1, sizeof *look->shares);
    look->lanes_of = calloc(seen->jobs_count + 1, sizeof *look->lanes_of);
    if (!look->lanes || !look->shares || !look->lanes_of)
        return -ENOMEM;
    count_jobs_of_lanes(look);
    count_tasks(look);
    for (size_t i = 0; i < seen->lanes_count; i++)
        count_lane(look, i);
    count_wishes(look);
    balance(look);
    count_stoppable(look);
    return 0;
}

void scale_look_fini(struct scale_look *look)
{
    free(look->lanes);
    free(look->shares);
    free(look->lanes_of);
    look->lanes = NULL;
    look->shares = NULL;
    look->lanes_of = NULL;
}
