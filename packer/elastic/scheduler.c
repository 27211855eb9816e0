/* Applies events to the state of a site, then decides about silent jobs, jobs with too few slots,
 * and growth. Owns jobs, slots and actions. After an error the state is unchanged, because each
 * event is checked, and memory is reserved, before the event is applied. */
#include "packer/elastic/internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* maximum number of seconds until a lost worker is started again */
#define SCHEDULER_BACKOFF_MAX_S 60
#define SCHEDULER_SMOOTHING 0.3 /* weight of the newest pause in the smoothed pause */

#define S_NS 1000000000

/* --- life --- */

void scheduler_destroy(struct scheduler *s)
{
    if (!s)
        return;
    while (s->jobs_count > 0)
        roster_remove(s, s->jobs[s->jobs_count - 1]);
    for (size_t i = 0; s->known && i < s->known->tenants_count; i++)
        free(s->known->tenants[i]);
    for (size_t i = 0; s->known && i < s->known->studies_count; i++)
        free(s->known->studies[i]);
    if (s->known) {
        free(s->known->tenants);
        free(s->known->studies);
    }
    free(s->known);
    free(s->jobs);
    free(s->bids);
    free(s->needs);
    free(s->slots);
    free(s->actions);
    free(s->pace);
    free(s);
}

struct scheduler *scheduler_create(const struct scheduler_options *options)
{
    struct scheduler *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->options = *options;
    s->pace = calloc(1, sizeof *s->pace);
    s->known = calloc(1, sizeof *s->known);
    s->slots = calloc(options->slots ? options->slots : 1, sizeof *s->slots);
    if (!s->pace || !s->known || !s->slots || options->slots > SCHEDULER_SLOTS_MAX) {
        scheduler_destroy(s);
        return NULL;
    }
    s->slots_count = options->slots;
    s->pace->resize_s =
        (double)(options->resize_ns ? options->resize_ns : SCHEDULER_RESIZE_NS) / S_NS;
    return s;
}

/* --- jobs --- */

static int scheduler_submit(struct scheduler *s, const struct scheduler_job *wants,
                            uint32_t followers)
{
    if (!wants || wants->workers_min == 0 || wants->workers_max < wants->workers_min ||
        wants->workers_max > SCHEDULER_WORKERS_MAX)
        return -EINVAL;
    if (roster_find(s, wants->id))
        return -EEXIST;
    if (wants->workers_min > needs_usable_slots(s))
        return -ENOSPC;
    int error = roster_add(s, wants);
    if (error == 0)
        s->jobs[s->jobs_count - 1]->history->followers = followers;
    return error;
}

static void scheduler_end_probe(struct scheduler *s, const struct roster_job *job)
{
    if (job->state == SCHEDULER_ACTIVE && job->phase != ROSTER_REPORTED && !job->wants.is_stage)
        pace_add(s->pace, s->now_ns - job->since_ns);
}

static void scheduler_report(struct scheduler *s, struct roster_job *job,
                             const struct scheduler_event *event)
{
    if (job->phase == ROSTER_REPORTED && event->step <= job->step) {
        s->reports_ignored++;
        return;
    }
    scheduler_end_probe(s, job);
    job->phase = ROSTER_REPORTED;
    job->step = event->step;
    job->rung = event->rung;
    job->value = event->value;
    job->history->failures = 0;
}

static void scheduler_stand(struct roster_job *job, const struct scheduler_event *event)
{
    job->rung = event->rung;
    job->value = event->value;
}

static void scheduler_end(struct scheduler *s, struct roster_job *job)
{
    scheduler_end_probe(s, job);
    if (s->options.wastes_ended)
        s->set_aside += job->workers + job->leaving;
    roster_remove(s, job);
}

static void scheduler_order_end(struct scheduler *s, struct roster_job *job)
{
    job->is_ending = true;
    while (job->workers > 0)
        roster_ask_to_leave(s, job);
    if (job->leaving == 0)
        roster_remove(s, job);
}

static void scheduler_order_rest(struct scheduler *s, struct roster_job *job)
{
    job->rests_by_order = true;
    if (job->state == SCHEDULER_ACTIVE)
        roster_ask_to_rest(s, job);
    job->state = SCHEDULER_RESTING;
}

/* Turns a rest that an operator ordered into an ordinary rest, which begins now. */
static void scheduler_order_go_on(struct scheduler *s, struct roster_job *job)
{
    if (job->rests_by_order)
        job->since_ns = s->now_ns;
    job->rests_by_order = false;
}

/* --- workers and slots --- */

static void scheduler_count_failure(struct scheduler *s, struct roster_job *job)
{
    uint64_t wait_s = SCHEDULER_BACKOFF_MAX_S;
    if (job->history->failures < 6)
        wait_s = UINT64_C(1) << job->history->failures;
    if (wait_s > SCHEDULER_BACKOFF_MAX_S)
        wait_s = SCHEDULER_BACKOFF_MAX_S;
    job->history->failures++;
    job->history->start_after_ns = s->now_ns + wait_s * S_NS;
}

static void scheduler_lose_worker(struct scheduler *s, struct roster_slot *slot,
                                  enum roster_slot_state state)
{
    struct roster_job *job = slot->job;
    if (slot->state == ROSTER_HELD)
        scheduler_count_failure(s, job);
    roster_vacate(s, slot, state);
    if (job->is_ending && job->workers + job->leaving == 0)
        roster_remove(s, job);
}

static void scheduler_take_in(struct scheduler *s, double pause_s)
{
    if (pause_s > 0 && isfinite(pause_s))
        s->pace->resize_s += SCHEDULER_SMOOTHING * (pause_s - s->pace->resize_s);
}

static void scheduler_measure(struct scheduler *s, struct roster_job *job,
                              const struct scheduler_event *event)
{
    struct curve *curve = &job->history->curve;
    if (!(event->step_s > 0) || !isfinite(event->step_s))
        return;
    job->history->failures = 0;
    growth_measure(s, job, event->workers, event->step_s);
    curve->lanes = event->lanes;
    curve->lane_s = event->lane_s >= 0 ? event->lane_s : 0;
    curve_add(curve, event->workers, event->step_s);
}

static int scheduler_find_slot(struct scheduler *s, uint32_t slot)
{
    bool is_lost = slot < s->slots_count && s->slots[slot].state == ROSTER_LOST;
    if (slot > s->slots_count || slot >= SCHEDULER_SLOTS_MAX || (slot < s->slots_count && !is_lost))
        return -EINVAL;
    if (slot == s->slots_count && roster_reserve_slots(s, slot + 1) < 0)
        return -ENOMEM;
    s->slots_count += slot == s->slots_count;
    s->slots[slot] = (struct roster_slot){.state = ROSTER_FREE};
    return 0;
}

static int scheduler_lose_slot(struct scheduler *s, uint32_t slot)
{
    if (slot >= s->slots_count || s->slots[slot].state == ROSTER_LOST)
        return -EINVAL;
    if (s->slots[slot].job)
        scheduler_lose_worker(s, &s->slots[slot], ROSTER_LOST);
    s->slots[slot].state = ROSTER_LOST;
    return 0;
}

/* Adds a worker of a held job that runs already, after a restart of the caller. The job counts as
 * running, not as probing, because its first report may have arrived before the restart. */
static int scheduler_find_worker(struct scheduler *s, struct roster_job *job,
                                 const struct scheduler_event *event)
{
    bool is_free = event->slot < s->slots_count && s->slots[event->slot].state == ROSTER_FREE;
    if (!is_free || !job->wants.is_held || job->workers >= job->wants.workers_max ||
        event->rank >= SCHEDULER_WORKERS_MAX || roster_slot_of(s, job, event->rank))
        return -EINVAL;
    roster_adopt(s, job, &s->slots[event->slot], event->rank);
    return 0;
}

/* Makes a held job rest. When the caller was restarted, the workers of the job slept or were about
 * to sleep. */
static int scheduler_find_rest(struct scheduler *s, struct roster_job *job)
{
    if (!job->wants.is_held || job->state == SCHEDULER_RESTING)
        return -EINVAL;
    roster_find_rest(s, job);
    return 0;
}

/* --- events --- */

static int scheduler_apply_to_worker(struct scheduler *s, struct roster_job *job,
                                     const struct scheduler_event *event)
{
    struct roster_slot *slot = roster_slot_of(s, job, event->rank);
    if (!slot)
        return -ENOENT;
    if (event->kind == SCHEDULER_WORKER_IN)
        scheduler_take_in(s, event->pause_s);
    else
        scheduler_lose_worker(s, slot, ROSTER_FREE);
    return 0;
}

static int scheduler_apply_to_job(struct scheduler *s, const struct scheduler_event *event)
{
    struct roster_job *job = roster_find(s, event->job);
    if (!job)
        return -ENOENT;
    switch (event->kind) {
    case SCHEDULER_REPORTED: scheduler_report(s, job, event); return 0;
    case SCHEDULER_STANDING: scheduler_stand(job, event); return 0;
    case SCHEDULER_ENDED: scheduler_end(s, job); return 0;
    case SCHEDULER_END_ORDERED: scheduler_order_end(s, job); return 0;
    case SCHEDULER_REST_ORDERED: scheduler_order_rest(s, job); return 0;
    case SCHEDULER_GO_ON_ORDERED: scheduler_order_go_on(s, job); return 0;
    case SCHEDULER_WORKER_IN:
    case SCHEDULER_WORKER_OUT: return scheduler_apply_to_worker(s, job, event);
    case SCHEDULER_LANES_LIMIT: job->history->lanes_workers = event->workers; return 0;
    case SCHEDULER_HELD: job->wants.is_held = event->is_held; return 0;
    case SCHEDULER_WORKER_FOUND: return scheduler_find_worker(s, job, event);
    case SCHEDULER_REST_FOUND: return scheduler_find_rest(s, job);
    case SCHEDULER_MAY_REST: job->wants.never_rests = !event->may_rest; return 0;
    case SCHEDULER_MEASURED:
        if (event->workers == 0 || event->workers > SCHEDULER_WORKERS_MAX)
            return -EINVAL;
        scheduler_measure(s, job, event);
        return 0;
    default: return -EINVAL;
    }
}

static int scheduler_apply(struct scheduler *s, const struct scheduler_event *event)
{
    switch (event->kind) {
    case SCHEDULER_TICK: return 0;
    case SCHEDULER_SUBMITTED: return scheduler_submit(s, event->submitted, event->followers);
    case SCHEDULER_SLOT_FOUND: return scheduler_find_slot(s, event->slot);
    case SCHEDULER_SLOT_LOST: return scheduler_lose_slot(s, event->slot);
    default: return scheduler_apply_to_job(s, event);
    }
}

static void scheduler_mark_silent(struct scheduler *s)
{
    uint64_t silent_ns = pace_silent_ns(s);
    for (size_t i = 0; i < s->jobs_count; i++)
        if (roster_is_probing(s->jobs[i]) && s->jobs[i]->since_ns + silent_ns <= s->now_ns)
            s->jobs[i]->phase = ROSTER_SILENT;
}

int scheduler_step(struct scheduler *s, const struct scheduler_event *event,
                   const struct scheduler_action **ret_actions)
{
    struct needs_walk walk;
    uint64_t before_ns = s->now_ns;
    if (event->now_ns < s->now_ns)
        return -EINVAL;
    int error = roster_reserve_actions(s);
    if (error < 0)
        return error;
    s->now_ns = event->now_ns;
    s->actions_count = 0;
    error = scheduler_apply(s, event);
    if (error < 0) {
        s->now_ns = before_ns;
        return error;
    }
    scheduler_mark_silent(s);
    needs_serve(s, &walk);
    uint32_t announced = needs_announced_slots(s);
    walk.room.free -= walk.room.free < announced ? walk.room.free : announced;
    if (roster_some_may_rest(s))
        growth_probe(s, &walk.room);
    needs_serve_rests(s, &walk);
    growth_share_out(s, walk.room);
    if (ret_actions)
        *ret_actions = s->actions;
    return (int)s->actions_count;
}

/* --- views --- */

static uint64_t scheduler_sooner(const struct scheduler *s, uint64_t wake_ns, uint64_t time_ns)
{
    return time_ns > s->now_ns && time_ns < wake_ns ? time_ns : wake_ns;
}

uint64_t scheduler_wake_ns(const struct scheduler *s)
{
    uint64_t wake_ns = UINT64_MAX;
    uint64_t quantum_ns = pace_quantum_ns(s), silent_ns = pace_silent_ns(s);
    for (size_t i = 0; i < s->jobs_count; i++) {
        const struct roster_job *job = s->jobs[i];
        wake_ns = scheduler_sooner(s, wake_ns, job->history->start_after_ns);
        if (job->history->followers > 0)
            wake_ns = scheduler_sooner(s, wake_ns, job->submitted_ns + SCHEDULER_FOLLOW_NS);
        if (job->state == SCHEDULER_RESTING)
            wake_ns = scheduler_sooner(s, wake_ns, job->since_ns + pace_rest_max_ns(s));
        if (job->state != SCHEDULER_ACTIVE)
            continue;
        wake_ns = scheduler_sooner(s, wake_ns, pace_held_until_ns(s, job));
        wake_ns = scheduler_sooner(s, wake_ns, job->since_ns + quantum_ns);
        if (roster_is_probing(job))
            wake_ns = scheduler_sooner(s, wake_ns, job->since_ns + silent_ns);
    }
    return wake_ns;
}

int scheduler_view(const struct scheduler *s, uint32_t job, struct scheduler_view *ret_view)
{
    const struct roster_job *found = roster_find(s, job);
    if (!found)
        return -ENOENT;
    *ret_view = (struct scheduler_view){.state = found->state,
                                        .is_probing = roster_is_probing(found),
                                        .rests_by_order = found->rests_by_order,
                                        .workers = found->workers,
                                        .leaving = found->leaving,
                                        .rung = found->rung,
                                        .submitted_ns = found->submitted_ns,
                                        .state_since_ns = found->since_ns};
    return 0;
}

struct scheduler_totals scheduler_totals(const struct scheduler *s)
{
    struct scheduler_totals totals = {.slots = needs_usable_slots(s),
                                      .free = roster_count(s, ROSTER_FREE),
                                      .jobs = (uint32_t)s->jobs_count,
                                      .reports_ignored = s->reports_ignored,
                                      .hold_ns = pace_hold_ns(s),
                                      .quantum_ns = pace_quantum_ns(s),
                                      .probe_ns = s->pace->median_ns};
    for (size_t i = 0; i < s->jobs_count; i++) {
        const struct roster_job *job = s->jobs[i];
        totals.waiting += job->state == SCHEDULER_WAITING;
        totals.probing += roster_is_probing(job);
        totals.running += job->state == SCHEDULER_ACTIVE && !roster_is_probing(job);
        totals.resting += job->state == SCHEDULER_RESTING;
        totals.overdue += needs_rest_is_overdue(s, job);
    }
    return totals;
}

bool scheduler_holder(const struct scheduler *s, uint32_t slot, uint32_t *ret_job,
                      uint32_t *ret_rank)
{
    if (slot >= s->slots_count || !s->slots[slot].job)
        return false;
    *ret_job = s->slots[slot].job->wants.id;
    *ret_rank = s->slots[slot].rank;
    return true;
}
