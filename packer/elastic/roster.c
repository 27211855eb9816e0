/* Owns the jobs and slots of a site, and the list of actions. Every slot has at most one worker,
 * and a rank is used again only after its slot is free. Must never decide which job gets a slot. */
#include "packer/elastic/internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- actions --- */

int roster_reserve_actions(struct scheduler *s)
{
    size_t room = 3 * (size_t)s->slots_count + 2 * s->jobs_count + 16;
    if (room <= s->actions_room)
        return 0;
    room += room / 2;
    struct scheduler_action *actions = reallocarray(s->actions, room, sizeof *actions);
    if (!actions)
        return -ENOMEM;
    s->actions = actions;
    s->actions_room = room;
    return 0;
}

static struct scheduler_action *roster_act(struct scheduler *s, enum scheduler_verb verb,
                                           const struct roster_job *job)
{
    struct scheduler_action *action = &s->actions[s->actions_count++];
    *action = (struct scheduler_action){.verb = verb, .job = job->wants.id};
    return action;
}

static void roster_act_on_slot(struct scheduler *s, enum scheduler_verb verb,
                               const struct roster_slot *slot, uint32_t before, uint32_t after)
{
    struct scheduler_action *action = roster_act(s, verb, slot->job);
    action->rank = slot->rank;
    action->slot = (uint32_t)(slot - s->slots);
    action->workers = after;
    action->before = curve_relative(&slot->job->history->curve, before);
    action->after = curve_relative(&slot->job->history->curve, after);
}

void roster_request_lanes(struct scheduler *s, const struct roster_job *job, uint32_t workers)
{
    roster_act(s, SCHEDULER_LANES, job)->workers = workers;
}

/* --- jobs --- */

struct roster_job *roster_find(const struct scheduler *s, uint32_t id)
{
    for (size_t i = 0; i < s->jobs_count; i++)
        if (s->jobs[i]->wants.id == id)
            return s->jobs[i];
    return NULL;
}

/* Returns the array with space for one more pointer; a full array is doubled. NULL: memory is
 * short, and the array is unchanged. */
static void *roster_room(void *array, size_t count, size_t bytes)
{
    if (count & (count - 1))
        return array;
    return reallocarray(array, count ? count * 2 : 1, bytes);
}

static struct roster_tenant *roster_get_tenant(struct roster_known *known, uint32_t id)
{
    for (size_t i = 0; i < known->tenants_count; i++)
        if (known->tenants[i]->id == id)
            return known->tenants[i];
    void *room = roster_room(known->tenants, known->tenants_count, sizeof(void *));
    if (!room)
        return NULL;
    known->tenants = room;
    struct roster_tenant *tenant = calloc(1, sizeof *tenant);
    if (!tenant)
        return NULL;
    tenant->id = id;
    return known->tenants[known->tenants_count++] = tenant;
}

static struct curve_study *roster_get_study(struct roster_known *known, uint32_t id)
{
    for (size_t i = 0; i < known->studies_count; i++)
        if (known->studies[i]->id == id)
            return known->studies[i];
    void *room = roster_room(known->studies, known->studies_count, sizeof(void *));
    if (!room)
        return NULL;
    known->studies = room;
    struct curve_study *study = calloc(1, sizeof *study);
    if (!study)
        return NULL;
    curve_study_init(study, id);
    return known->studies[known->studies_count++] = study;
}

static struct roster_job *roster_new_job(void)
{
    struct roster_job *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    job->history = calloc(1, sizeof *job->history);
    if (job->history)
        return job;
    free(job);
    return NULL;
}

/* Deletes the numbers of announced jobs in all jobs of the study, because the announcement of a new
 * job replaces earlier announcements. */
static void roster_forget_followers(struct scheduler *s, const struct scheduler_job *of)
{
    for (size_t i = 0; i < s->jobs_count; i++)
        if (s->jobs[i]->wants.study == of->study && s->jobs[i]->wants.tenant == of->tenant)
            s->jobs[i]->history->followers = 0;
}

int roster_add(struct scheduler *s, const struct scheduler_job *wants)
{
    struct roster_tenant *tenant = roster_get_tenant(s->known, wants->tenant);
    struct curve_study *study = roster_get_study(s->known, wants->study);
    void *room = roster_room(s->jobs, s->jobs_count, sizeof(void *));
    s->jobs = room ? room : s->jobs;
    void *bids = roster_room(s->bids, s->jobs_count, sizeof *s->bids);
    s->bids = bids ? bids : s->bids;
    void *needs = roster_room(s->needs, s->jobs_count, sizeof *s->needs);
    s->needs = needs ? needs : s->needs;
    bool has_room = tenant && study && room && bids && needs;
    struct roster_job *job = has_room ? roster_new_job() : NULL;
    if (!job)
        return -ENOMEM;
    curve_init(&job->history->curve, study);
    study->jobs++;
    roster_forget_followers(s, wants);
    job->wants = *wants;
    job->tenant = tenant;
    job->value = NAN;
    job->submitted_ns = job->since_ns = s->now_ns;
    s->jobs[s->jobs_count++] = job;
    return 0;
}

static void roster_drop_oldest_study(struct roster_known *known)
{
    size_t at = 0;
    while (known->studies[at]->jobs > 0)
        at++;
    free(known->studies[at]);
    known->studies_count--;
    memmove(known->studies + at, known->studies + at + 1,
            (known->studies_count - at) * sizeof *known->studies);
}

/* Removes a job from its study. A study without jobs moves to the end of the list of studies; if
 * there are too many such studies, the oldest one is dropped. */
static void roster_leave_study(struct roster_known *known, struct curve_study *study)
{
    size_t at = 0, idle = 0;
    if (--study->jobs > 0)
        return;
    while (known->studies[at] != study)
        at++;
    memmove(known->studies + at, known->studies + at + 1,
            (known->studies_count - at - 1) * sizeof *known->studies);
    known->studies[known->studies_count - 1] = study;
    for (at = 0; at < known->studies_count; at++)
        idle += known->studies[at]->jobs == 0;
    if (idle > ROSTER_IDLE_MAX)
        roster_drop_oldest_study(known);
}

void roster_remove(struct scheduler *s, struct roster_job *job)
{
    for (uint32_t i = 0; i < s->slots_count; i++)
        if (s->slots[i].job == job)
            s->slots[i] = (struct roster_slot){.state = ROSTER_FREE};
    job->tenant->slots -= job->workers;
    size_t at = 0;
    while (s->jobs[at] != job)
        at++;
    memmove(s->jobs + at, s->jobs + at + 1, (s->jobs_count - at - 1) * sizeof *s->jobs);
    s->jobs_count--;
    roster_leave_study(s->known, job->history->curve.study);
    free(job->history);
    free(job);
}

/* --- slots --- */

int roster_reserve_slots(struct scheduler *s, uint32_t count)
{
    struct roster_slot *slots = reallocarray(s->slots, count, sizeof *slots);
    if (!slots)
        return -ENOMEM;
    s->slots = slots;
    return 0;
}

uint32_t roster_count(const struct scheduler *s, enum roster_slot_state state)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->slots_count; i++)
        count += s->slots[i].state == state;
    return count;
}

static void roster_mark_ranks(const struct scheduler *s, const struct roster_job *job,
                              uint64_t ret_ranks[SCHEDULER_WORKERS_MAX / 64])
{
    memset(ret_ranks, 0, SCHEDULER_WORKERS_MAX / 64 * sizeof *ret_ranks);
    for (uint32_t i = 0; i < s->slots_count; i++)
        if (s->slots[i].job == job)
            ret_ranks[s->slots[i].rank / 64] |= UINT64_C(1) << s->slots[i].rank % 64;
}

static uint32_t roster_take_rank(uint64_t ranks[SCHEDULER_WORKERS_MAX / 64])
{
    uint32_t rank = 0;
    while (ranks[rank / 64] & UINT64_C(1) << rank % 64)
        rank++;
    ranks[rank / 64] |= UINT64_C(1) << rank % 64;
    return rank;
}

void roster_place(struct scheduler *s, struct roster_job *job, uint32_t count)
{
    bool wakes = job->state == SCHEDULER_RESTING && job->has_processes;
    uint64_t ranks[SCHEDULER_WORKERS_MAX / 64];
    uint32_t before = job->workers, at = 0;
    roster_mark_ranks(s, job, ranks);
    roster_request_lanes(s, job, before + count);
    for (uint32_t placed = 0; placed < count; placed++) {
        while (s->slots[at].state != ROSTER_FREE)
            at++;
        s->slots[at] = (struct roster_slot){ROSTER_HELD, job, roster_take_rank(ranks)};
        roster_act_on_slot(s, wakes ? SCHEDULER_GO_ON : SCHEDULER_START, &s->slots[at], before,
                           before + count);
    }
    if (job->state != SCHEDULER_ACTIVE)
        job->since_ns = s->now_ns;
    job->state = SCHEDULER_ACTIVE;
    job->has_processes = false;
    job->workers += count;
    job->tenant->slots += count;
    job->changed_ns = s->now_ns;
}

void roster_adopt(struct scheduler *s, struct roster_job *job, struct roster_slot *slot,
                  uint32_t rank)
{
    *slot = (struct roster_slot){ROSTER_HELD, job, rank};
    if (job->state != SCHEDULER_ACTIVE)
        job->since_ns = s->now_ns;
    job->state = SCHEDULER_ACTIVE;
    job->phase = ROSTER_REPORTED;
    job->workers++;
    job->tenant->slots++;
    job->changed_ns = s->now_ns;
}

/* Returns the slot of the highest rank among the job's ranks that are not leaving. */
static struct roster_slot *roster_highest(struct scheduler *s, const struct roster_job *job)
{
    struct roster_slot *highest = NULL;
    for (uint32_t i = 0; i < s->slots_count; i++) {
        struct roster_slot *slot = &s->slots[i];
        if (slot->job == job && slot->state == ROSTER_HELD &&
            (!highest || slot->rank > highest->rank))
            highest = slot;
    }
    return highest;
}

static void roster_mark_leaving(struct roster_job *job, struct roster_slot *slot)
{
    slot->state = ROSTER_LEAVING;
    job->workers--;
    job->leaving++;
    job->tenant->slots--;
}

void roster_ask_to_leave(struct scheduler *s, struct roster_job *job)
{
    struct roster_slot *slot = roster_highest(s, job);
    if (!slot)
        return;
    roster_mark_leaving(job, slot);
    roster_act_on_slot(s, SCHEDULER_LEAVE, slot, job->workers + 1, job->workers);
    job->changed_ns = s->now_ns;
    job->history->grown_from = 0;
}

bool roster_has_all_asleep(const struct scheduler *s, uint32_t more)
{
    uint32_t most = s->options.resting_max ? s->options.resting_max : SCHEDULER_RESTING_MAX;
    for (size_t i = 0; i < s->jobs_count; i++)
        more += s->jobs[i]->state == SCHEDULER_RESTING && s->jobs[i]->has_processes;
    return more >= most;
}

static void roster_begin_rest(struct scheduler *s, struct roster_job *job)
{
    for (uint32_t i = 0; i < s->slots_count; i++)
        if (s->slots[i].job == job && s->slots[i].state == ROSTER_HELD)
            roster_mark_leaving(job, &s->slots[i]);
    job->state = SCHEDULER_RESTING;
    job->since_ns = s->now_ns;
    job->history->grown_from = 0;
}

void roster_ask_to_rest(struct scheduler *s, struct roster_job *job)
{
    struct scheduler_action *action = roster_act(s, SCHEDULER_REST, job);
    action->workers = job->workers;
    action->before = curve_relative(&job->history->curve, job->workers);
    action->ends_processes = !s->options.keeps_processes && roster_has_all_asleep(s, 0);
    roster_begin_rest(s, job);
    job->has_processes = !action->ends_processes;
}

void roster_find_rest(struct scheduler *s, struct roster_job *job)
{
    roster_begin_rest(s, job);
    job->has_processes = true;
    job->phase = ROSTER_REPORTED;
}

bool roster_some_may_rest(const struct scheduler *s)
{
    for (size_t i = 0; i < s->jobs_count; i++)
        if (!s->jobs[i]->wants.never_rests)
            return !s->options.never_rests;
    return false;
}

struct roster_slot *roster_slot_of(struct scheduler *s, const struct roster_job *job, uint32_t rank)
{
    for (uint32_t i = 0; i < s->slots_count; i++)
        if (s->slots[i].job == job && s->slots[i].rank == rank)
            return &s->slots[i];
    return NULL;
}

void roster_vacate(struct scheduler *s, struct roster_slot *slot, enum roster_slot_state state)
{
    struct roster_job *job = slot->job;
    if (slot->state == ROSTER_LEAVING) {
        job->leaving--;
    } else {
        job->workers--;
        job->tenant->slots--;
    }
    *slot = (struct roster_slot){.state = state};
    if (job->leaving == 0)
        roster_request_lanes(s, job, job->workers);
}
