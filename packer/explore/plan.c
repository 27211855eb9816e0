/* Owns the moves of each method: greedy, the largest piece first (X7). Of equal pieces the first
 * piece moves. After a failed try the last piece moves instead, because the first piece may not
 * have been the cause. No move exceeds the free memory of a lane, or the time limit that the method
 * sets for target lanes. */
#include "packer/explore/explore.h"

#include <stdlib.h>
#include <string.h>

#define SHIFT_PART 0.1
#define SLOW_PART 0.5 /* a lane with less than this fraction of the highest rate is slow */

static const struct explore_rate *find_rate(const struct explore *explore, uint32_t id)
{
    for (size_t i = 0; i < explore->rates_count; i++)
        if (explore->rates[i].id == id)
            return &explore->rates[i];
    return NULL;
}

bool explore_view_make(const struct explore *explore, const struct explore_seen *seen,
                       struct explore_view *ret_view)
{
    struct explore_view view = {.explore = explore, .seen = seen};
    for (size_t i = 0; i < seen->pieces_count; i++)
        view.load[seen->pieces[i].lane] += (double)seen->pieces[i].bytes;
    for (size_t i = 0; i < seen->lanes_count; i++) {
        const struct explore_rate *rate = find_rate(explore, seen->lanes[i].id);
        if (view.load[i] > 0 && rate && rate->handled.mean > 0)
            view.rate[i] = view.load[i] / rate->handled.mean;
        view.all_bytes += view.rate[i] > 0 ? view.load[i] : 0;
        view.all_rate += view.rate[i];
    }
    for (size_t i = 1; i < seen->lanes_count; i++)
        if (explore_view_time(&view, i) > explore_view_time(&view, view.slowest))
            view.slowest = i;
    *ret_view = view;
    return view.all_rate > 0;
}

double explore_view_time(const struct explore_view *view, size_t lane)
{
    return view->rate[lane] > 0 ? view->load[lane] / view->rate[lane] : 0;
}

double explore_view_even_time(const struct explore_view *view)
{
    return view->all_bytes / view->all_rate;
}

double explore_view_longest(const struct explore_view *view)
{
    double longest = 0;
    for (size_t i = 0; i < view->seen->lanes_count; i++)
        if (explore_view_time(view, i) > longest)
            longest = explore_view_time(view, i);
    return longest;
}

/* --- one piece --- */

struct plan {
    struct explore_view *view;
    uint32_t *at;    /* lane of each piece after the planned moves */
    double limit_ns; /* longest time that a target may need for a round */
    bool takes_last; /* true: of equal pieces the last one moves; false: the first one */
    /* number of bytes of each lane's room_bytes that planned moves use */
    double taken[EXPLORE_LANES_MAX];
};

static bool may_take(const struct plan *plan, size_t lane, double bytes)
{
    const struct explore_view *view = plan->view;
    double room = (double)view->seen->lanes[lane].room_bytes - plan->taken[lane];
    return view->rate[lane] > 0 && bytes <= room &&
           (view->load[lane] + bytes) / view->rate[lane] <= plan->limit_ns;
}

/* Returns the target lane that the move brings closest to the time limit without exceeding it;
 * lanes_count if no lane stays within the limit. */
static size_t best_target(const struct plan *plan, size_t source, double bytes)
{
    const struct explore_view *view = plan->view;
    size_t count = view->seen->lanes_count, best = count;
    double most = -1;
    for (size_t i = 0; i < count; i++) {
        double time = view->rate[i] > 0 ? (view->load[i] + bytes) / view->rate[i] : 0;
        if (i == source || !may_take(plan, i, bytes) || time <= most)
            continue;
        most = time;
        best = i;
    }
    return best;
}

static void put(struct plan *plan, uint32_t piece, size_t target)
{
    double bytes = (double)plan->view->seen->pieces[piece].bytes;
    plan->view->load[plan->at[piece]] -= bytes;
    plan->view->load[target] += bytes;
    plan->taken[target] += bytes;
    plan->at[piece] = (uint32_t)target;
}

/* Returns the largest piece of the lane among those with at most `bytes` bytes and fewer than
 * `below` bytes; pieces_count if there is none. */
static uint32_t largest_piece(const struct plan *plan, size_t lane, double bytes, double below)
{
    const struct explore_seen *seen = plan->view->seen;
    uint32_t best = (uint32_t)seen->pieces_count;
    for (uint32_t i = 0; i < seen->pieces_count; i++) {
        double own = (double)seen->pieces[i].bytes;
        bool fits = plan->at[i] == lane && own > 0 && own <= bytes && own < below;
        double most = best < seen->pieces_count ? (double)seen->pieces[best].bytes : 0;
        if (fits && (own > most || (own == most && plan->takes_last)))
            best = i;
    }
    return best;
}

/* Moves pieces off the lane until its time is within the limit, or `most` bytes have moved. */
static void lighten(struct plan *plan, size_t source, double most)
{
    const struct explore_view *view = plan->view;
    double below = (double)UINT64_MAX;
    while (most > 0 && explore_view_time(view, source) > plan->limit_ns) {
        uint32_t piece = largest_piece(plan, source, most, below);
        if (piece == view->seen->pieces_count)
            return;
        double bytes = (double)view->seen->pieces[piece].bytes;
        size_t target = best_target(plan, source, bytes);
        if (target == view->seen->lanes_count) {
            below = bytes; /* no lane can take another piece of this size */
            continue;
        }
        put(plan, piece, target);
        most -= bytes;
    }
}

/* --- methods --- */

/* Equalizes the times of all lanes. Pieces are not cut, so the equal time (X3) can seldom be
 * reached exactly. The time limit of a lane is therefore raised by 3 %, up to twice. */
static void make_even(struct plan *plan)
{
    double even_ns = explore_view_even_time(plan->view);
    for (int strict = 0; strict < 3; strict++) {
        plan->limit_ns = even_ns * (1 + 0.03 * strict);
        for (size_t i = 0; i < plan->view->seen->lanes_count; i++)
            lighten(plan, i, plan->view->load[i]);
    }
}

/* Adds a lane without pieces of the job. Its assumed rate is the mean of the other lanes. */
static bool open_lane(struct plan *plan)
{
    struct explore_view *view = plan->view;
    size_t rated = 0;
    for (size_t i = 0; i < view->seen->lanes_count; i++)
        rated += view->rate[i] > 0;
    for (size_t i = 0; i < view->seen->lanes_count; i++) {
        if (view->rate[i] > 0 || view->load[i] > 0 || view->seen->lanes[i].room_bytes == 0)
            continue;
        view->rate[i] = view->all_rate / (double)rated;
        view->all_rate += view->rate[i];
        return true;
    }
    return false;
}

/* Returns whether the lane is slow. One cause may slow several lanes, and rounds become shorter
 * only when no slow lane has a piece. */
static bool is_slow(const struct explore_view *view, size_t lane)
{
    double best = 0;
    for (size_t i = 0; i < view->seen->lanes_count; i++)
        best = view->rate[i] > best ? view->rate[i] : best;
    return lane == view->slowest || (view->rate[lane] > 0 && view->rate[lane] < SLOW_PART * best);
}

static void empty_slow(struct plan *plan)
{
    struct explore_view *view = plan->view;
    size_t count = view->seen->lanes_count;
    double rates[EXPLORE_LANES_MAX], left = 0;
    bool empties[EXPLORE_LANES_MAX];
    for (size_t i = 0; i < count; i++) {
        rates[i] = view->rate[i];
        empties[i] = is_slow(view, i);
        left += empties[i] ? 0 : rates[i];
    }
    if (left <= 0)
        return;
    for (size_t i = 0; i < count; i++)
        if (empties[i])
            /* a rate this low puts every piece over the limit, so no piece moves to this lane */
            view->rate[i] /= 1e9;
    for (int strict = 0; strict < 3; strict++) {
        plan->limit_ns = view->all_bytes / left * (1.05 + 0.1 * strict);
        for (size_t i = 0; i < count; i++)
            if (empties[i])
                lighten(plan, i, view->load[i]);
    }
    memcpy(view->rate, rates, count * sizeof *rates);
}

static void shift(struct plan *plan)
{
    struct explore_view *view = plan->view;
    plan->limit_ns = explore_view_time(view, view->slowest) * (1 - SHIFT_PART);
    lighten(plan, view->slowest, view->load[view->slowest]);
}

size_t explore_plan(enum explore_method method, struct explore_view *view,
                    struct explore_move *ret_moves)
{
    size_t count = view->seen->pieces_count, moves = 0;
    struct plan plan = {.view = view, .at = malloc((count + 1) * sizeof *plan.at)};
    if (!plan.at)
        return 0; /* memory is short; a later window plans again */
    for (size_t i = 0; i < count; i++)
        plan.at[i] = view->seen->pieces[i].lane;
    plan.takes_last = view->explore->methods[method].failed % 2;
    switch (method) {
    case EXPLORE_EVEN: make_even(&plan); break;
    case EXPLORE_OUT:
        if (open_lane(&plan))
            make_even(&plan);
        break;
    case EXPLORE_IN: empty_slow(&plan); break;
    case EXPLORE_SHIFT: shift(&plan); break;
    case EXPLORE_METHODS: break;
    }
    for (uint32_t i = 0; i < count; i++)
        if (plan.at[i] != view->seen->pieces[i].lane)
            ret_moves[moves++] = (struct explore_move){i, plan.at[i]};
    free(plan.at);
    return moves;
}
