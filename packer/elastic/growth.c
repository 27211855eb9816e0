/* Gives free slots to running and probing jobs, one at a time, each to the job with the largest
 * relative gain (F4). Undoes growth with less than half of the promised gain. Must never grow a job
 * beyond its maximum, beyond the limit of its lanes, or to a number of workers that was undone
 * before. */
#include "packer/elastic/internal.h"

#include <stdlib.h>

#define GROWTH_STAY_S 600  /* assumed remaining time of a job of unknown length */
#define GROWTH_PROMISE 0.5 /* part of the promised gain that growth has to reach */
#define GROWTH_PROBING 0.5 /* a job without a report grows only with at least this gain */
/* a worker moves to another job if the gain is at least this multiple of the loss */
#define GROWTH_EXCHANGE 1.25
/* the maximum in `cap` is removed when the step time changes by this fraction */
#define GROWTH_DRIFT 0.25

/* --- gain of one more worker --- */

static uint32_t growth_most(const struct roster_job *job)
{
    uint32_t most = job->wants.workers_max;
    if (job->history->lanes_workers && job->history->lanes_workers < most)
        most = job->history->lanes_workers;
    if (job->history->cap && job->history->cap < most)
        most = job->history->cap;
    return most;
}

static bool growth_is_possible(const struct scheduler *s, const struct roster_job *job)
{
    if (job->state != SCHEDULER_ACTIVE || job->wants.is_stage || job->wants.is_held ||
        job->is_ending || job->leaving)
        return false;
    if (job->workers < job->wants.workers_min || job->history->start_after_ns > s->now_ns)
        return false;
    bool starts_now = job->since_ns == s->now_ns;
    return !s->options.holds_growth || starts_now || pace_held_until_ns(s, job) <= s->now_ns;
}

/* Returns the time for which growth is expected to last: half of the time to the last step, at the
 * present speed (F4). */
static double growth_stay_s(const struct roster_job *job, uint32_t workers)
{
    double step_s = curve_step_s(&job->history->curve, workers);
    if (job->wants.steps <= job->step || !(step_s > 0))
        return GROWTH_STAY_S;
    return 0.5 * (double)(job->wants.steps - job->step) * step_s;
}

/* Returns the speed that one more worker adds, in speeds of one worker; 0: the pause of the change
 * costs more steps than the worker adds. A job that starts now has no pause. */
static double growth_gain(const struct scheduler *s, const struct roster_job *job, uint32_t workers)
{
    const struct curve *curve = &job->history->curve;
    if (workers >= growth_most(job))
        return 0;
    double before = curve_relative(curve, workers);
    double gain = curve_relative(curve, workers + 1) - before;
    double cost_s = job->since_ns == s->now_ns ? 0 : s->pace->resize_s;
    if (gain <= 0 || gain * growth_stay_s(job, workers) <= before * cost_s)
        return 0;
    return gain;
}

/* --- free slots --- */

static size_t growth_collect(struct scheduler *s, struct growth_bid *bids, bool only_probing)
{
    size_t count = 0;
    for (size_t i = 0; i < s->jobs_count; i++) {
        struct roster_job *job = s->jobs[i];
        bool may_grow = growth_is_possible(s, job) && (!only_probing || roster_is_probing(job));
        double gain = may_grow ? growth_gain(s, job, job->workers) : 0;
        if (gain > 0)
            bids[count++] = (struct growth_bid){.job = job, .workers = job->workers, .gain = gain};
    }
    return count;
}

/* Returns the best bid; NULL: no bid has a gain. The tenant with the fewest slots comes first (F6),
 * then the largest gain, then the lowest job id. A tenant's slots include those assigned in this
 * call. */
static struct growth_bid *growth_best(struct growth_bid *bids, size_t count)
{
    struct growth_bid *best = NULL;
    for (size_t i = 0; i < count; i++) {
        struct growth_bid *bid = &bids[i];
        if (!(bid->gain > 0))
            continue;
        uint32_t slots = bid->job->tenant->slots;
        uint32_t best_slots = best ? best->job->tenant->slots : 0;
        if (!best || slots < best_slots ||
            (slots == best_slots &&
             (bid->gain > best->gain ||
              (bid->gain == best->gain && bid->job->wants.id < best->job->wants.id))))
            best = bid;
    }
    return best;
}

static void growth_remember(struct roster_job *job, uint32_t workers)
{
    struct roster_history *history = job->history;
    const struct curve *curve = &history->curve;
    if (!(curve->one_s > 0))
        return;
    if (!history->grown_from) {
        history->grown_from = job->workers;
        history->grown_from_step_s = curve_step_s(curve, job->workers);
    }
    history->promised = curve_relative(curve, workers) / curve_relative(curve, history->grown_from);
}

/* Starts the workers of all bids. Calls roster_place() once for each job, so that the lane time of
 * a job changes once. */
static void growth_carry_out(struct scheduler *s, struct growth_bid *bids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct roster_job *job = bids[i].job;
        uint32_t given = bids[i].workers - job->workers;
        job->tenant->slots -= given;
        if (given == 0)
            continue;
        growth_remember(job, bids[i].workers);
        roster_place(s, job, given);
    }
}

/* Assigns up to `count` slots to the best bids; only the bids change. */
static void growth_bid_for(struct scheduler *s, size_t count, uint32_t slots)
{
    for (; slots > 0; slots--) {
        struct growth_bid *best = growth_best(s->bids, count);
        if (!best)
            return;
        best->workers++;
        best->job->tenant->slots++;
        best->gain = growth_gain(s, best->job, best->workers);
    }
}

static void growth_forget_bids(struct scheduler *s, size_t count)
{
    for (size_t i = 0; i < count; i++)
        s->bids[i].job->tenant->slots -= s->bids[i].workers - s->bids[i].job->workers;
}

/* --- workers that move from job to job --- */

/* Returns whether the job of the bid gains enough speed by one worker, compared with the speed that
 * the victim loses. The pauses of both jobs are counted. */
static bool growth_is_worth(const struct scheduler *s, const struct growth_bid *bid,
                            const struct roster_job *victim, double loss)
{
    double paused = curve_relative(&bid->job->history->curve, bid->workers) +
                    curve_relative(&victim->history->curve, victim->workers);
    return bid->gain > GROWTH_EXCHANGE * loss &&
           (bid->gain - loss) * growth_stay_s(bid->job, bid->workers) > paused * s->pace->resize_s;
}

/* Orders workers of running jobs to leave if other jobs would gain enough speed with the slots of
 * these workers. */
static void growth_exchange(struct scheduler *s)
{
    size_t count = growth_collect(s, s->bids, false);
    for (;;) {
        double loss;
        struct growth_bid *best = growth_best(s->bids, count);
        struct roster_job *victim = best ? victims_find(s, best->job, &loss) : NULL;
        if (!victim || !growth_is_worth(s, best, victim, loss))
            break;
        roster_ask_to_leave(s, victim);
        growth_bid_for(s, count, 1);
    }
    growth_forget_bids(s, count);
}

/* --- probing jobs --- */

static uint32_t growth_probing_workers(const struct scheduler *s)
{
    uint32_t workers = 0;
    for (size_t i = 0; i < s->jobs_count; i++)
        if (roster_is_probing(s->jobs[i]) ||
            (s->jobs[i]->state == SCHEDULER_WAITING && !s->jobs[i]->wants.is_held))
            workers += s->jobs[i]->workers > s->jobs[i]->wants.workers_min
                           ? s->jobs[i]->workers
                           : s->jobs[i]->wants.workers_min;
    return workers;
}

/* Finds a slot for one more worker of a probing job: a free slot, the slot of a leaving worker, or
 * a slot of a running job. */
static bool growth_find_room(struct scheduler *s, const struct growth_bid *bid,
                             struct needs_slots *room)
{
    double loss;
    if (room->free + room->coming > 0)
        return true;
    struct roster_job *victim = victims_find(s, bid->job, &loss);
    if (victim && growth_is_worth(s, bid, victim, loss)) {
        roster_ask_to_leave(s, victim);
        room->coming = 1;
        return true;
    }
    room->coming = victims_rest_one(s, bid->job);
    return room->coming > 0;
}

void growth_probe(struct scheduler *s, struct needs_slots *room)
{
    uint32_t most = needs_usable_slots(s) * 3 / 4, given = 0;
    uint32_t held = growth_probing_workers(s);
    if (s->options.never_rests || room->has_waiting || held >= most)
        return;
    size_t count = growth_collect(s, s->bids, true);
    while (held < most) {
        struct growth_bid *best = growth_best(s->bids, count);
        if (!best || best->gain < GROWTH_PROBING || !growth_find_room(s, best, room))
            break;
        if (room->free > 0)
            room->free--, given++;
        else
            room->coming--;
        held++;
        growth_bid_for(s, count, 1);
    }
    growth_forget_bids(s, count);
    if (given > 0) {
        count = growth_collect(s, s->bids, true);
        growth_bid_for(s, count, given);
        growth_carry_out(s, s->bids, count);
    }
}

void growth_share_out(struct scheduler *s, struct needs_slots room)
{
    uint32_t spare = room.free > s->set_aside ? room.free - s->set_aside : 0;
    if (spare > 0) {
        size_t count = growth_collect(s, s->bids, false);
        growth_bid_for(s, count, spare);
        growth_carry_out(s, s->bids, count);
    }
    if (!room.has_waiting && room.coming == 0)
        growth_exchange(s);
}

/* --- promised and measured gain --- */

static void growth_lift_cap(struct roster_history *history, double step_s)
{
    double ratio = history->cap_step_s > 0 ? step_s / history->cap_step_s : 1;
    if (history->cap && (ratio > 1 + GROWTH_DRIFT || ratio < 1 - GROWTH_DRIFT))
        history->cap = 0;
}

static bool growth_keeps_promise(const struct roster_history *history, double step_s)
{
    double kept = history->grown_from_step_s / step_s - 1;
    return kept >= GROWTH_PROMISE * (history->promised - 1);
}

void growth_measure(struct scheduler *s, struct roster_job *job, uint32_t workers, double step_s)
{
    struct roster_history *history = job->history;
    if (workers == history->cap)
        growth_lift_cap(history, step_s);
    if (!history->grown_from || workers != job->workers || workers <= history->grown_from)
        return;
    uint32_t from = history->grown_from;
    history->grown_from = 0;
    if (job->state != SCHEDULER_ACTIVE || job->wants.is_held ||
        growth_keeps_promise(history, step_s))
        return;
    history->cap = from > job->wants.workers_min ? from : job->wants.workers_min;
    history->cap_step_s = history->grown_from_step_s;
    while (job->workers > history->cap)
        roster_ask_to_leave(s, job);
}
