/* Assigns slots to jobs that have too few slots: first jobs below their minimum, then overdue rests
 * (jobs that have rested too long), the queue, and other rests (F2 to F4, F6, F8). If a job cannot
 * get all its slots, the free slots and the slots of leaving workers are reserved for this job, and
 * all later jobs wait. So a job with many workers collects its slots, and no job starves. */
#include "packer/elastic/internal.h"

#include <math.h>

enum needs_class { NEEDS_LOSS, NEEDS_OVERDUE, NEEDS_QUEUE, NEEDS_REST, NEEDS_NOTHING };

bool needs_rest_is_overdue(const struct scheduler *s, const struct roster_job *job)
{
    return job->state == SCHEDULER_RESTING && !job->rests_by_order &&
           job->since_ns + pace_rest_max_ns(s) <= s->now_ns;
}

static enum needs_class needs_class_of(const struct scheduler *s, const struct roster_job *job)
{
    if (job->leaving || job->is_ending || job->wants.is_held ||
        job->history->start_after_ns > s->now_ns)
        return NEEDS_NOTHING;
    if (job->state == SCHEDULER_WAITING)
        return NEEDS_QUEUE;
    if (job->state == SCHEDULER_ACTIVE)
        return job->workers < job->wants.workers_min ? NEEDS_LOSS : NEEDS_NOTHING;
    if (job->rests_by_order)
        return NEEDS_NOTHING;
    return needs_rest_is_overdue(s, job) ? NEEDS_OVERDUE : NEEDS_REST;
}

/* Returns whether resting job `a` gets slots before `b`: the job with the higher rung comes first,
 * then the job with the better report. Jobs without a report are last. */
static bool needs_rest_is_better(const struct roster_job *a, const struct roster_job *b)
{
    if (a->rung != b->rung)
        return a->rung > b->rung;
    if (isnan(a->value) || isnan(b->value))
        return !isnan(a->value);
    return a->value < b->value;
}

/* Returns whether `a` gets slots before `b`. Requires two jobs of the same class, of which `a` was
 * submitted later. */
static bool needs_overtakes(enum needs_class class, const struct roster_job *a,
                            const struct roster_job *b)
{
    switch (class) {
    case NEEDS_OVERDUE: return a->since_ns < b->since_ns;
    case NEEDS_REST:
        if (a->tenant->slots != b->tenant->slots)
            return a->tenant->slots < b->tenant->slots;
        return needs_rest_is_better(a, b);
    default: return a->tenant->slots < b->tenant->slots;
    }
}

/* --- the next job --- */

static void needs_collect(struct scheduler *s, struct needs_walk *walk)
{
    walk->count = 0;
    for (size_t i = 0; i < s->jobs_count; i++) {
        enum needs_class class = needs_class_of(s, s->jobs[i]);
        if (class != NEEDS_NOTHING)
            s->needs[walk->count++] = (struct needs_entry){s->jobs[i], class};
    }
}

/* Returns the entry of the next job, of class `most` or an earlier class; NULL: none. */
static struct needs_entry *needs_find(const struct scheduler *s, const struct needs_walk *walk,
                                      enum needs_class most)
{
    struct needs_entry *best = NULL;
    for (size_t i = 0; i < walk->count; i++) {
        struct needs_entry *entry = &s->needs[i];
        if (!entry->job || entry->class > (int)most || (best && entry->class > best->class))
            continue;
        if (best && entry->class == best->class &&
            !needs_overtakes(entry->class, entry->job, best->job))
            continue;
        best = entry;
    }
    return best;
}

static bool needs_has_rests(const struct scheduler *s)
{
    for (size_t i = 0; i < s->jobs_count; i++)
        if (s->jobs[i]->state == SCHEDULER_RESTING && !s->jobs[i]->rests_by_order)
            return true;
    return false;
}

uint32_t needs_usable_slots(const struct scheduler *s)
{
    return s->slots_count - roster_count(s, ROSTER_LOST);
}

uint32_t needs_announced_slots(const struct scheduler *s)
{
    uint64_t slots = 0;
    for (size_t i = 0; i < s->jobs_count; i++) {
        const struct roster_job *job = s->jobs[i];
        if (s->now_ns < job->submitted_ns + SCHEDULER_FOLLOW_NS)
            slots += (uint64_t)job->history->followers * job->wants.workers_min;
    }
    return slots < s->slots_count ? (uint32_t)slots : s->slots_count;
}

static uint32_t needs_kept_workers(const struct scheduler *s)
{
    uint32_t kept = 0;
    for (size_t i = 0; i < s->jobs_count; i++)
        kept += roster_kept_workers(s->jobs[i]);
    return kept;
}

/* Returns whether probing jobs and stages may get `count` more slots. Together they may have three
 * quarters of the usable slots (F3). The first job of this kind may exceed this limit. */
static bool needs_probing_fits(const struct needs_walk *walk, uint32_t count)
{
    return walk->kept == 0 || walk->kept + count <= walk->usable * 3 / 4;
}

/* --- slots for one job --- */

static uint32_t needs_missing(const struct roster_job *job)
{
    return job->wants.workers_min - job->workers;
}

/* Reserves slots for a job: free slots first, then slots of leaving workers. */
static void needs_reserve_slots(struct needs_slots *room, uint32_t count)
{
    uint32_t free = room->free < count ? room->free : count;
    uint32_t coming = room->coming < count - free ? room->coming : count - free;
    room->free -= free;
    room->coming -= coming;
}

static unsigned needs_ways(const struct scheduler *s, const struct needs_walk *walk,
                           const struct needs_entry *entry)
{
    if (entry->class == NEEDS_REST)
        return VICTIMS_SHRINK;
    if (s->options.never_rests ||
        (entry->class == NEEDS_QUEUE && !needs_probing_fits(walk, needs_missing(entry->job))))
        return VICTIMS_SHRINK | VICTIMS_PROBE_NARROWER;
    return VICTIMS_SHRINK | VICTIMS_REST | VICTIMS_PROBE_NARROWER;
}

static void needs_place(struct scheduler *s, struct needs_walk *walk, struct roster_job *job,
                        uint32_t count)
{
    bool rested = job->state == SCHEDULER_RESTING;
    walk->room.free -= count;
    s->set_aside -= s->set_aside < count ? s->set_aside : count;
    roster_place(s, job, count);
    if (rested)
        walk->has_rests = needs_has_rests(s);
}

/* Reserves slots for the job, and orders other workers to leave if needed. Returns false if these
 * slots do not suffice. A job of class NEEDS_REST then reserves no slot. */
static bool needs_reserve(struct scheduler *s, struct needs_walk *walk, struct needs_entry *entry,
                          uint32_t count)
{
    struct needs_slots *room = &walk->room;
    if (room->free + room->coming < count) {
        room->coming += victims_make_room(s, entry->job, count - room->free - room->coming,
                                          needs_ways(s, walk, entry));
        walk->has_rests = needs_has_rests(s);
    }
    bool is_coming = room->free + room->coming >= count;
    if (is_coming || entry->class != NEEDS_REST)
        needs_reserve_slots(room, count);
    return is_coming;
}

static bool needs_serve_entry(struct scheduler *s, struct needs_walk *walk,
                              struct needs_entry *entry)
{
    uint32_t count = needs_missing(entry->job);
    if (walk->room.free >= count)
        needs_place(s, walk, entry->job, count);
    else if (!needs_reserve(s, walk, entry, count))
        return false;
    walk->kept += entry->class == NEEDS_QUEUE ? count : 0;
    entry->job = NULL;
    return true;
}

/* Returns whether a queued job has to wait because a quarter of the slots is reserved for resting
 * jobs (F3). */
static bool needs_stays_behind_rests(const struct needs_walk *walk, const struct needs_entry *entry)
{
    return entry->class == NEEDS_QUEUE && walk->has_rests &&
           !needs_probing_fits(walk, needs_missing(entry->job));
}

/* If there are enough slots of leaving workers, reserves these slots in one step for all jobs below
 * their minimum, overdue rests and queued jobs. Without this step many new jobs would cost one
 * decision for each slot. */
static bool needs_all_come(struct scheduler *s, struct needs_walk *walk)
{
    uint32_t missing = 0, queued = 0;
    for (size_t i = 0; i < walk->count; i++) {
        const struct needs_entry *entry = &s->needs[i];
        if (!entry->job || entry->class > NEEDS_QUEUE)
            continue;
        missing += needs_missing(entry->job);
        queued += entry->class == NEEDS_QUEUE ? needs_missing(entry->job) : 0;
    }
    if (walk->room.free > 0 || missing > walk->room.coming ||
        (walk->has_rests && !needs_probing_fits(walk, queued)))
        return false;
    for (size_t i = 0; i < walk->count; i++)
        if (s->needs[i].class <= NEEDS_QUEUE)
            s->needs[i].job = NULL;
    walk->room.coming -= missing;
    walk->kept += queued;
    return true;
}

/* Assigns slots to jobs below their minimum, overdue rests and queued jobs, until one of these jobs
 * has to wait. */
static void needs_serve_queue(struct scheduler *s, struct needs_walk *walk)
{
    struct needs_entry *entry;
    walk->is_behind_rests = false;
    while (!needs_all_come(s, walk) && (entry = needs_find(s, walk, NEEDS_QUEUE)) != NULL) {
        if (needs_stays_behind_rests(walk, entry)) {
            walk->is_behind_rests = true;
            return;
        }
        if (!needs_serve_entry(s, walk, entry)) {
            walk->room = (struct needs_slots){.has_waiting = true};
            return;
        }
    }
}

void needs_serve(struct scheduler *s, struct needs_walk *ret_walk)
{
    *ret_walk = (struct needs_walk){
        .has_rests = needs_has_rests(s),
        .kept = needs_kept_workers(s),
        .usable = needs_usable_slots(s),
        .room = {.free = roster_count(s, ROSTER_FREE), .coming = roster_count(s, ROSTER_LEAVING)}};
    needs_collect(s, ret_walk);
    needs_serve_queue(s, ret_walk);
}

/* Assigns slots to resting jobs in order. After the first job that has to wait, later jobs get only
 * slots that are free now. */
static void needs_serve_other_rests(struct scheduler *s, struct needs_walk *walk)
{
    for (bool may_ask = true; may_ask || walk->room.free > 0;) {
        struct needs_entry *entry = needs_find(s, walk, NEEDS_REST);
        if (!entry || entry->class != NEEDS_REST)
            return;
        if (may_ask || walk->room.free >= needs_missing(entry->job))
            may_ask &= needs_serve_entry(s, walk, entry);
        entry->job = NULL;
    }
}

void needs_serve_rests(struct scheduler *s, struct needs_walk *walk)
{
    if (walk->room.has_waiting)
        return;
    needs_serve_other_rests(s, walk);
    /* the queued jobs had to wait for resting jobs; by now all resting jobs may have slots */
    if (walk->is_behind_rests)
        needs_serve_queue(s, walk);
    if (walk->is_behind_rests)
        walk->room = (struct needs_slots){.has_waiting = true};
}
