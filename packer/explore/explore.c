/* Owns the steps of one experiment: ends windows, chooses a method, and judges the result of a try.
 * A try that is not significantly better is always undone (X5). No try begins unless workers wait
 * (X3, X6). */
#include "packer/explore/explore.h"

#include <errno.h>
#include <stdio.h>

#define MS 1e6
#define PPM 1e6

const char *explore_method_name(enum explore_method method)
{
    static const char *const names[] = {"even", "out", "in", "shift"};
    return method < EXPLORE_METHODS ? names[method] : "none";
}

/* --- a window --- */

static void begin_window(struct explore *e)
{
    e->round = (struct explore_meter){0};
    e->rates_count = 0;
}

void explore_reset(struct explore *e)
{
    struct explore anew = {.membership = e->membership,
                           .last_ns = e->last_ns,
                           .windows = e->windows,
                           .tries = e->tries,
                           .ignores_next = true};
    *e = anew;
}

void explore_moved(struct explore *e, bool has_moved)
{
    if (e->phase != EXPLORE_MOVING && e->phase != EXPLORE_RETURNING)
        return;
    e->phase = e->phase == EXPLORE_MOVING && has_moved ? EXPLORE_TRYING : EXPLORE_WATCHING;
    e->ignores_next = true;
    begin_window(e);
}

static bool is_sound(const struct explore_seen *seen)
{
    if (seen->workers == 0)
        return false;
    for (size_t i = 1; i < seen->lanes_count; i++)
        if (seen->lanes[i - 1].id >= seen->lanes[i].id)
            return false;
    for (size_t i = 0; i < seen->pieces_count; i++)
        if (seen->pieces[i].lane >= seen->lanes_count)
            return false;
    return true;
}

/* Finds the rate of a lane. The lanes do not change within a window, because a change restarts the
 * window (X8). */
static struct explore_rate *rate_of(struct explore *e, uint32_t id)
{
    for (size_t i = 0; i < e->rates_count; i++)
        if (e->rates[i].id == id)
            return &e->rates[i];
    if (e->rates_count == EXPLORE_LANES_MAX)
        return NULL;
    struct explore_rate *rate = &e->rates[e->rates_count++];
    *rate = (struct explore_rate){.id = id};
    return rate;
}

static void count(struct explore *e, const struct explore_seen *seen)
{
    double rounds = (double)seen->rounds;
    explore_meter_add(&e->round, rounds, (double)seen->elapsed_ns / rounds);
    for (size_t i = 0; i < seen->lanes_count; i++) {
        const struct explore_lane *lane = &seen->lanes[i];
        struct explore_rate *rate = rate_of(e, lane->id);
        if (!rate)
            continue;
        explore_meter_add(&rate->handled, rounds, (double)lane->handled_ns / rounds);
        explore_meter_add(&rate->stalled, rounds,
                          (double)lane->stalled_ns / rounds / (double)seen->workers);
    }
}

/* Adds the counts of one call. Returns whether this call ends the window. */
static bool take(struct explore *e, const struct explore_options *o,
                 const struct explore_seen *seen, uint64_t now_ns)
{
    bool is_gap = now_ns - e->last_ns > EXPLORE_GAP_NS;
    e->last_ns = now_ns;
    if (is_gap || e->ignores_next) {
        e->ignores_next = false;
        begin_window(e);
        return false;
    }
    count(e, seen);
    return e->round.weight >= (o->rounds ? o->rounds : EXPLORE_ROUNDS) &&
           e->round.samples >= (o->samples ? o->samples : EXPLORE_SAMPLES);
}

/* --- the choice of a method --- */

static double stalled(const struct explore *e)
{
    double ns = 0;
    for (size_t i = 0; i < e->rates_count; i++)
        ns += e->rates[i].stalled.mean;
    return ns;
}

static double half_of(const struct explore *e, uint32_t id)
{
    for (size_t i = 0; i < e->rates_count; i++)
        if (e->rates[i].id == id)
            return explore_meter_half(&e->rates[i].handled);
    return 0;
}

static bool may_try(const struct explore *e, enum explore_method method)
{
    return e->windows >= e->methods[method].until;
}

static void say(struct explore_decision *d, const char *text)
{
    snprintf(d->reason, sizeof d->reason, "%s", text);
}

static void try_method(struct explore *e, enum explore_method method, size_t moves,
                       struct explore_decision *d)
{
    e->phase = EXPLORE_MOVING;
    e->method = method;
    e->before = e->round;
    e->tries++;
    d->verb = EXPLORE_MOVE;
    d->method = method;
    d->moves_count = moves;
}

/* Returns whether the interval of the slowest lane is above 1.1 times the time that all lanes would
 * need if they needed equally long (X3). */
static bool is_uneven(const struct explore *e, const struct explore_view *view)
{
    double slowest_ns = explore_view_time(view, view->slowest);
    uint32_t id = view->seen->lanes[view->slowest].id;
    return slowest_ns - half_of(e, id) > explore_view_even_time(view) * EXPLORE_UNEVEN_PPM / PPM;
}

/* Plans a move off a slow lane if workers wait and the gain is large enough (X3). The method is
 * EXPLORE_EVEN. While EXPLORE_EVEN is suspended by X5, the method is EXPLORE_IN. */
static bool exploit(struct explore *e, const struct explore_options *o, struct explore_view *view,
                    struct explore_move *ret_moves, struct explore_decision *d)
{
    double slowest_ns = explore_view_time(view, view->slowest);
    double even_ns = explore_view_even_time(view), stalled_ns = stalled(e);
    double least_ns = e->round.mean * EXPLORE_GAIN_PPM / PPM;
    enum explore_method method =
        may_try(e, EXPLORE_EVEN) || o->is_blind ? EXPLORE_EVEN : EXPLORE_IN;
    if (!is_uneven(e, view) || stalled_ns < least_ns || !may_try(e, method))
        return false;
    size_t moves = explore_plan(method, view, ret_moves);
    double gain_ns = slowest_ns - explore_view_longest(view);
    if (moves == 0 || (gain_ns < stalled_ns ? gain_ns : stalled_ns) < least_ns)
        return false;
    snprintf(
        d->reason, sizeof d->reason,
        "lane %u needs %.2f ms a round; with equal times on all lanes, it would need %.2f ms; a "
        "worker waits %.2f of %.2f ms: experiment %s; pieces that move: %zu",
        view->seen->lanes[view->slowest].id, slowest_ns / MS, even_ns / MS, stalled_ns / MS,
        e->round.mean / MS, explore_method_name(method), moves);
    try_method(e, method, moves, d);
    return true;
}

/* Returns a pseudo-random number that depends only on seed and window (splitmix64). */
static uint64_t chance(uint64_t seed, uint64_t window)
{
    uint64_t x = seed + window * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t chance_ppm(const struct explore *e)
{
    uint64_t ppm = (uint64_t)(PPM / (double)(e->tries + 1));
    return ppm < EXPLORE_CHANCE_MOST_PPM ? ppm : EXPLORE_CHANCE_MOST_PPM;
}

/* Tries a method at random (X6): one more lane if all lanes need about equally long, otherwise
 * EXPLORE_IN or EXPLORE_SHIFT. */
static bool explore_one(struct explore *e, const struct explore_view *view, uint64_t seed,
                        struct explore_move *ret_moves, struct explore_decision *d)
{
    uint64_t drawn = chance(seed, e->windows);
    double stalled_ns = stalled(e);
    if (stalled_ns < e->round.mean * EXPLORE_STALL_PPM / PPM || drawn % 1000000 >= chance_ppm(e))
        return false;
    enum explore_method other = drawn / 1000000 % 2 ? EXPLORE_IN : EXPLORE_SHIFT;
    enum explore_method method = is_uneven(e, view) ? other : EXPLORE_OUT;
    struct explore_view tried = *view;
    size_t moves = may_try(e, method) ? explore_plan(method, &tried, ret_moves) : 0;
    if (moves == 0)
        return false;
    snprintf(d->reason, sizeof d->reason,
             "a worker waits %.2f of %.2f ms: experiment %s starts; pieces that move: %zu",
             stalled_ns / MS, e->round.mean / MS, explore_method_name(method), moves);
    try_method(e, method, moves, d);
    return true;
}

static void choose(struct explore *e, const struct explore_options *o,
                   const struct explore_seen *seen, uint64_t seed, struct explore_move *ret_moves,
                   struct explore_decision *d)
{
    struct explore_view view;
    say(d, "no lane delays the job");
    if (!explore_view_make(e, seen, &view))
        return say(d, "the lanes handled no chunk of the job");
    if (exploit(e, o, &view, ret_moves, d) || o->is_blind)
        return;
    explore_view_make(e, seen, &view);
    explore_one(e, &view, seed, ret_moves, d);
}

/* --- the verdict --- */

static void judge(struct explore *e, const struct explore_options *o, struct explore_decision *d)
{
    double half = explore_meter_half(&e->round), half_before = explore_meter_half(&e->before);
    bool is_better = e->round.mean + half < e->before.mean - half_before;
    d->method = e->method;
    d->before_ns = e->before.mean;
    d->after_ns = e->round.mean;
    d->verb = is_better || o->is_blind ? EXPLORE_KEEP : EXPLORE_BACK;
    snprintf(d->reason, sizeof d->reason,
             "experiment %s: a round takes %.2f ms (+- %.2f), before %.2f (+- %.2f): %s",
             explore_method_name(e->method), e->round.mean / MS, half / MS, e->before.mean / MS,
             half_before / MS, d->verb == EXPLORE_KEEP ? "kept" : "rolled back");
    e->phase = d->verb == EXPLORE_BACK ? EXPLORE_RETURNING : EXPLORE_WATCHING;
    if (is_better) {
        e->methods[e->method].failed = 0;
        return;
    }
    e->methods[e->method].until =
        e->windows + 1 + ((uint64_t)EXPLORE_HOLD_WINDOWS << e->methods[e->method].failed);
    e->methods[e->method].failed += e->methods[e->method].failed < EXPLORE_HOLDS_MAX;
}

int explore_tick(struct explore *e, const struct explore_options *options,
                 const struct explore_seen *seen, uint64_t seed, uint64_t now_ns,
                 struct explore_move *ret_moves, struct explore_decision *ret_decision)
{
    struct explore_decision d = {.verb = EXPLORE_NOTHING, .method = EXPLORE_METHODS};
    if (!is_sound(seen))
        return -EINVAL;
    if (seen->membership != e->membership)
        explore_reset(e);
    e->membership = seen->membership;
    say(&d, "the window continues");
    if (seen->lanes_count > EXPLORE_LANES_MAX) {
        say(&d, "the job has too many lanes");
    } else if (e->phase == EXPLORE_MOVING || e->phase == EXPLORE_RETURNING) {
        e->last_ns = now_ns;
        say(&d, "tasks of the job are being moved");
    } else if (seen->rounds > 0 && take(e, options, seen, now_ns)) {
        e->windows++;
        if (e->phase == EXPLORE_TRYING)
            judge(e, options, &d);
        else
            choose(e, options, seen, seed, ret_moves, &d);
        begin_window(e);
    }
    *ret_decision = d;
    return 0;
}
