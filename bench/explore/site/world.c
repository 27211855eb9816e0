/* The virtual clock: trials arrive, compute, report and end. Owns the site. A trial's progress
 * depends only on its own speed. */
#include "bench/explore/site/world.h"
#include "bench/explore/site/site.h"
#include "bench/sim/chance.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define WORLD_MEASURE_ERROR 0.02 /* standard deviation of a measured step time */
#define WORLD_STEP_SLACK 1e-6    /* tolerance for sums of doubles, in steps */

/* --- progress of a trial --- */

uint64_t site_ns(double seconds) { return (uint64_t)ceil(seconds * SITE_NS); }

int site_append(struct site_list *list, double value)
{
    if (list->count == list->room) {
        size_t room = list->room ? list->room * 2 : 64;
        double *values = reallocarray(list->values, room, sizeof *values);
        if (!values)
            return -ENOMEM;
        list->values = values;
        list->room = room;
    }
    list->values[list->count++] = value;
    return 0;
}

uint32_t site_helpers(const struct site_trial *t)
{
    uint32_t helpers = 0;
    for (size_t i = 0; i < TRIAL_WORKERS_MAX; i++)
        helpers += t->ranks[i].is_present && t->ranks[i].helps;
    return helpers;
}

double site_rate(const struct site *site, const struct site_trial *t)
{
    return t->stopped_until_ns > site->now_ns ? 0 : trial_speed(t->trial, site_helpers(t));
}

/* Updates the progress. Since the last change the rate was constant, except during a pause. */
void site_advance(struct site *site, struct site_trial *t)
{
    uint64_t from_ns = t->updated_ns;
    if (t->stopped_until_ns > from_ns)
        from_ns = t->stopped_until_ns;
    if (from_ns < site->now_ns)
        t->steps +=
            (double)(site->now_ns - from_ns) / SITE_NS * trial_speed(t->trial, site_helpers(t));
    t->updated_ns = site->now_ns;
}

static void world_sooner(struct site_trial *t, uint64_t time_ns)
{
    if (time_ns < t->next_ns)
        t->next_ns = time_ns;
}

static void world_plan_steps(struct site *site, struct site_trial *t, double steps)
{
    double rate = site_rate(site, t);
    if (rate > 0)
        world_sooner(t, site->now_ns + site_ns(fmax(0, steps - t->steps) / rate));
}

void site_plan(struct site *site, struct site_trial *t)
{
    t->next_ns = SITE_NEVER;
    if (t->state == SITE_COMING || t->state == SITE_OVER)
        return;
    for (size_t i = 0; i < TRIAL_WORKERS_MAX; i++)
        if (t->ranks[i].is_present && (t->ranks[i].leaves || !t->ranks[i].helps))
            world_sooner(t, t->ranks[i].at_ns);
    if (t->stopped_until_ns > site->now_ns && site_helpers(t) > 0)
        world_sooner(t, t->stopped_until_ns);
    world_plan_steps(site, t, t->trial->rungs[t->rung]);
    if (t->measure_at > 0)
        world_plan_steps(site, t, t->measure_at);
}

/* --- events of a trial --- */

static struct scheduler_event world_event(const struct site *site, const struct site_trial *t,
                                          enum scheduler_kind kind)
{
    return (struct scheduler_event){
        .kind = kind, .now_ns = site->now_ns, .job = (uint32_t)(t - site->trials)};
}

static int world_rank_in(struct site *site, struct site_trial *t, uint32_t number)
{
    struct scheduler_event event = world_event(site, t, SCHEDULER_WORKER_IN);
    bool joins = site_helpers(t) > 0;
    t->ranks[number].helps = true;
    event.rank = number;
    event.pause_s =
        joins ? fmax(site->setting->costs.resize_s, site->setting->policy->restart_s) : 0;
    site_plan(site, t);
    int error = joins && site->setting->policy->restart_s == 0
                    ? orders_stop(site, t, site->setting->costs.resize_s)
                    : 0;
    return error < 0 ? error : orders_send(site, &event);
}

static int world_rank_out(struct site *site, struct site_trial *t, uint32_t number)
{
    struct scheduler_event event = world_event(site, t, SCHEDULER_WORKER_OUT);
    event.rank = number;
    orders_release(site, &t->ranks[number]);
    site_plan(site, t);
    int error = site_helpers(t) > 0 && site->setting->policy->restart_s == 0
                    ? orders_stop(site, t, site->setting->costs.resize_s)
                    : 0;
    return error < 0 ? error : orders_send(site, &event);
}

static int world_end(struct site *site, struct site_trial *t)
{
    struct scheduler_event event = world_event(site, t, SCHEDULER_ENDED);
    for (size_t i = 0; i < TRIAL_WORKERS_MAX; i++)
        if (t->ranks[i].is_present)
            orders_release(site, &t->ranks[i]);
    t->state = SITE_OVER;
    t->end_ns = site->now_ns;
    site->over++;
    site_plan(site, t);
    return orders_send(site, &event);
}

static void world_note_best(struct site *site, const struct site_trial *t)
{
    double value = t->trial->reports[TRIAL_RUNGS - 1];
    if (t->trial->is_stage || value >= site->best)
        return;
    site->best = value;
    site->best_ns = site->now_ns;
}

static void world_note_probe(struct site *site, struct site_trial *t)
{
    if (t->feedback_ns || t->trial->is_stage)
        return;
    t->feedback_ns = site->now_ns;
    if (!t->was_silent && site->now_ns - t->start_ns > site->probe_ns)
        site->probe_ns = site->now_ns - t->start_ns;
}

static int world_report(struct site *site, struct site_trial *t)
{
    struct scheduler_event event = world_event(site, t, SCHEDULER_REPORTED);
    uint32_t rung = t->rung++;
    t->steps = fmax(t->steps, t->trial->rungs[rung]);
    world_note_probe(site, t);
    if (rung == TRIAL_RUNGS - 1) {
        world_note_best(site, t);
        return world_end(site, t);
    }
    if (!trial_search_keeps(&site->search, rung, t->trial->reports[rung]))
        return world_end(site, t);
    event.rung = rung + 1;
    event.step = (uint64_t)t->trial->rungs[rung];
    event.value = t->trial->reports[rung];
    site_plan(site, t);
    return orders_send(site, &event);
}

static int world_measure(struct site *site, struct site_trial *t)
{
    struct scheduler_event event = world_event(site, t, SCHEDULER_MEASURED);
    event.workers = site_helpers(t);
    event.step_s = (1 + WORLD_MEASURE_ERROR * chance_normal(&site->chance)) /
                   trial_speed(t->trial, event.workers);
    t->measure_at = 0;
    site_plan(site, t);
    return orders_send(site, &event);
}

/* Handles the first event of the trial at the present time. False: the trial has no event now. */
static bool world_happen(struct site *site, struct site_trial *t, int *ret_error)
{
    *ret_error = 0;
    if (t->state == SITE_OVER)
        return false;
    for (uint32_t i = 0; i < TRIAL_WORKERS_MAX; i++) {
        const struct site_rank *rank = &t->ranks[i];
        if (!rank->is_present || rank->at_ns > site->now_ns || (rank->helps && !rank->leaves))
            continue;
        *ret_error = rank->leaves ? world_rank_out(site, t, i) : world_rank_in(site, t, i);
        return true;
    }
    if (site_rate(site, t) <= 0)
        return false;
    if (t->steps + WORLD_STEP_SLACK >= t->trial->rungs[t->rung])
        *ret_error = world_report(site, t);
    else if (t->measure_at > 0 && t->steps + WORLD_STEP_SLACK >= t->measure_at)
        *ret_error = world_measure(site, t);
    else
        return false;
    return true;
}

/* --- arrivals --- */

static void world_note_queue(struct site *site, struct site_trial *t)
{
    t->arrival = (struct site_wait){.from_ns = site->now_ns};
    for (size_t i = 0; i < site->setting->count; i++) {
        const struct site_trial *other = &site->trials[i];
        if (other->state != SITE_WAITING)
            continue;
        t->arrival.ahead += other->trial->workers_min;
        t->arrival.wide += other->trial->workers_min > site->setting->slots / 4;
    }
}

static int world_submit(struct site *site, struct site_trial *t)
{
    const struct trial *trial = t->trial;
    struct scheduler_event event = world_event(site, t, SCHEDULER_SUBMITTED);
    struct scheduler_job job = {.id = event.job,
                                .workers_min = trial->workers_min,
                                .workers_max = trial->workers_max,
                                .steps = (uint64_t)trial_steps(trial),
                                .is_stage = trial->is_stage};
    event.submitted = &job;
    t->state = SITE_WAITING;
    t->submit_ns = t->updated_ns = site->now_ns;
    t->rung = trial->is_stage || trial->is_silent ? TRIAL_RUNGS - 1 : 0;
    world_note_queue(site, t);
    site_plan(site, t);
    return orders_send(site, &event);
}

/* --- the clock --- */

static uint64_t world_next_ns(const struct site *site, size_t arrived)
{
    uint64_t next_ns = SITE_NEVER;
    if (arrived < site->setting->count)
        next_ns = site_ns(site->setting->trials[arrived].submit_s);
    for (size_t i = 0; i < arrived; i++)
        if (site->trials[i].next_ns < next_ns)
            next_ns = site->trials[i].next_ns;
    uint64_t wake_ns = site->scheduler ? scheduler_wake_ns(site->scheduler) : SITE_NEVER;
    return wake_ns < next_ns ? wake_ns : next_ns;
}

static int world_live(struct site *site, size_t arrived)
{
    struct scheduler_event tick = {.kind = SCHEDULER_TICK, .now_ns = site->now_ns};
    int error = 0;
    bool happens = true;
    for (size_t i = 0; i < arrived && error == 0; i++) {
        struct site_trial *t = &site->trials[i];
        if (t->next_ns > site->now_ns)
            continue;
        site_advance(site, t);
        for (happens = true; happens && error == 0;)
            happens = world_happen(site, t, &error);
        site_plan(site, t);
    }
    return error < 0 || !site->scheduler ? error : orders_send(site, &tick);
}

static int world_play(struct site *site)
{
    size_t arrived = 0, count = site->setting->count;
    int error = 0;
    while (site->over < count && error == 0) {
        uint64_t next_ns = world_next_ns(site, arrived);
        if (next_ns == SITE_NEVER)
            return -EPROTO; /* no event is left, and the remaining trials would wait forever */
        site->now_ns = next_ns;
        while (arrived < count && error == 0 &&
               site_ns(site->setting->trials[arrived].submit_s) <= site->now_ns)
            error = world_submit(site, &site->trials[arrived++]);
        if (error == 0)
            error = world_live(site, arrived);
    }
    return error;
}

/* --- life --- */

static void world_fini(struct site *site)
{
    trial_search_fini(&site->search);
    scheduler_destroy(site->scheduler);
    fixed_fini(&site->queue);
    free(site->pauses.values);
    free(site->started);
    free(site->trials);
}

static int world_init(struct site *site, const struct world_setting *setting)
{
    struct scheduler_options options = setting->policy->options;
    *site = (struct site){.setting = setting, .chance = setting->seed, .best = INFINITY};
    options.slots = setting->slots;
    site->trials = calloc(setting->count, sizeof *site->trials);
    site->started = calloc(setting->count, sizeof *site->started);
    if (!setting->policy->is_fixed)
        site->scheduler = scheduler_create(&options);
    fixed_init(&site->queue, setting->policy->rule, setting->slots);
    if (!site->trials || !site->started || trial_search_init(&site->search, setting->count) < 0 ||
        (!setting->policy->is_fixed && !site->scheduler))
        return -ENOMEM;
    for (size_t i = 0; i < setting->count; i++) {
        site->trials[i].trial = &setting->trials[i];
        site->trials[i].next_ns = SITE_NEVER;
    }
    return 0;
}

int world_run(const struct world_setting *setting, struct world_figures *ret_figures)
{
    struct site site;
    int error = world_init(&site, setting);
    if (error == 0)
        error = world_play(&site);
    if (error == 0)
        figures_of(&site, ret_figures);
    world_fini(&site);
    return error;
}
