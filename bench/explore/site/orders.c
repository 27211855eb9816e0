/* Applies the actions of a policy to the site. An impossible action, such as a second worker of one
 * rank, is an error of the run. */
#include "bench/explore/site/site.h"

#include <errno.h>

#define ORDERS_LEAVE_STEPS 2 /* a worker ends this many steps after the request to leave */
#define ORDERS_LEAVE_S 0.2   /* the worker's slot is free after this time */
#define ORDERS_MEASURE_STEPS 12

/* Schedules a measurement of the new number of workers some steps later. */
static void orders_changed(struct site *site, struct site_trial *t)
{
    t->measure_at = t->steps + ORDERS_MEASURE_STEPS;
    site_plan(site, t);
}

int orders_stop(struct site *site, struct site_trial *t, double seconds)
{
    uint64_t until_ns = site->now_ns + site_ns(seconds);
    if (seconds <= 0 || until_ns <= t->stopped_until_ns)
        return 0;
    t->stopped_until_ns = until_ns;
    site_plan(site, t);
    return site_append(&site->pauses, seconds);
}

void orders_release(struct site *site, struct site_rank *rank)
{
    site->held_s += (double)(site->now_ns - rank->since_ns) / SITE_NS;
    rank->is_present = rank->helps = rank->leaves = false;
}

static uint64_t orders_leave_ns(const struct site *site, const struct site_trial *t)
{
    uint32_t helpers = site_helpers(t);
    if (site->setting->policy->restart_s > 0 || helpers == 0)
        return site->now_ns;
    return site->now_ns + site_ns(ORDERS_LEAVE_STEPS / trial_speed(t->trial, helpers)) +
           site_ns(ORDERS_LEAVE_S);
}

static void orders_rank_leaves(struct site *site, struct site_trial *t, struct site_rank *rank)
{
    uint64_t at_ns = rank->helps ? orders_leave_ns(site, t) : site->now_ns;
    if (at_ns - site->now_ns > site->leave_ns)
        site->leave_ns = at_ns - site->now_ns;
    rank->leaves = true;
    rank->at_ns = at_ns;
}

static void orders_activate(struct site *site, struct site_trial *t)
{
    if (t->state == SITE_WAITING) {
        t->start_ns = site->now_ns;
        t->arrival.length_ns = site->now_ns - t->arrival.from_ns;
    }
    if (t->state == SITE_RESTING) {
        t->rest.length_ns = site->now_ns - t->rest.from_ns;
        site->rests_over += t->rest.length_ns > figures_rest_bound_ns(site, t);
    }
    t->state = SITE_ACTIVE;
}

/* Starts a worker. Under a policy with restarts the whole job pauses during the start. */
static int orders_start(struct site *site, struct site_trial *t, uint32_t number, bool wakes)
{
    const struct stream_costs *costs = &site->setting->costs;
    const struct world_policy *policy = site->setting->policy;
    struct site_rank *rank = &t->ranks[number];
    bool is_first = site_helpers(t) == 0 && t->steps == 0;
    double start_s = policy->preloads ? costs->preload_start_s : costs->start_s;
    if (number >= TRIAL_WORKERS_MAX || rank->is_present)
        return -EPROTO;
    site_advance(site, t);
    if (wakes)
        start_s = costs->resize_s;
    else
        site->resizes += !is_first;
    orders_activate(site, t);
    *rank = (struct site_rank){.is_present = true, .since_ns = site->now_ns};
    rank->at_ns = site->now_ns + site_ns(policy->restart_s > 0 && !is_first ? 0 : start_s);
    orders_changed(site, t);
    return policy->restart_s > 0 && !is_first ? orders_stop(site, t, policy->restart_s) : 0;
}

static int orders_leave(struct site *site, struct site_trial *t, uint32_t number)
{
    struct site_rank *rank = &t->ranks[number];
    if (number >= TRIAL_WORKERS_MAX || !rank->is_present || rank->leaves)
        return -EPROTO;
    site_advance(site, t);
    orders_rank_leaves(site, t, rank);
    site->resizes++;
    orders_changed(site, t);
    return orders_stop(site, t, site->setting->policy->restart_s);
}

static int orders_rest(struct site *site, struct site_trial *t)
{
    site_advance(site, t);
    for (size_t i = 0; i < TRIAL_WORKERS_MAX; i++)
        if (t->ranks[i].is_present && !t->ranks[i].leaves)
            orders_rank_leaves(site, t, &t->ranks[i]);
    t->state = SITE_RESTING;
    t->rest = (struct site_wait){.from_ns = site->now_ns};
    site->resizes++;
    site_plan(site, t);
    return 0;
}

static int orders_carry_out(struct site *site, const struct scheduler_action *action)
{
    if (action->job >= site->setting->count)
        return -EPROTO;
    struct site_trial *t = &site->trials[action->job];
    switch (action->verb) {
    case SCHEDULER_START: return orders_start(site, t, action->rank, false);
    case SCHEDULER_GO_ON: return orders_start(site, t, action->rank, true);
    case SCHEDULER_LEAVE: return orders_leave(site, t, action->rank);
    case SCHEDULER_REST: return orders_rest(site, t);
    case SCHEDULER_LANES: site->lane_changes++; return 0;
    }
    return -EPROTO;
}

static int orders_ask_scheduler(struct site *site, const struct scheduler_event *event)
{
    const struct scheduler_action *actions = NULL;
    int count = scheduler_step(site->scheduler, event, &actions);
    figures_watch(site); /* checks bounds before an action ends a wait */
    for (int i = 0; i < count; i++) {
        int error = orders_carry_out(site, &actions[i]);
        if (error < 0)
            return error;
    }
    return count < 0 ? count : 0;
}

/* --- fixed numbers of workers --- */

static uint32_t orders_fixed_workers(const struct site *site, const struct site_trial *t)
{
    uint32_t workers = site->setting->policy->workers;
    if (t->trial->is_stage || workers < t->trial->workers_min)
        return t->trial->workers_min;
    return workers < t->trial->workers_max ? workers : t->trial->workers_max;
}

static int orders_ask_queue(struct site *site, const struct scheduler_event *event)
{
    struct site_trial *t = &site->trials[event->job];
    int error = 0;
    if (event->kind == SCHEDULER_SUBMITTED)
        error = fixed_submit(&site->queue, event->job, orders_fixed_workers(site, t),
                             site->setting->slots);
    else if (event->kind == SCHEDULER_ENDED)
        site->queue.free += orders_fixed_workers(site, t);
    else
        return 0;
    size_t started = error < 0 ? 0 : fixed_pass(&site->queue, site->started);
    for (size_t i = 0; i < started && error == 0; i++) {
        t = &site->trials[site->started[i]];
        for (uint32_t rank = 0; rank < orders_fixed_workers(site, t) && error == 0; rank++)
            error = orders_start(site, t, rank, false);
    }
    return error;
}

int orders_send(struct site *site, const struct scheduler_event *event)
{
    return site->scheduler ? orders_ask_scheduler(site, event) : orders_ask_queue(site, event);
}
