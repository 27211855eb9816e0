/* State of the scheduler, shared by the files of this room. scheduler.c applies events, needs.c
 * serves jobs without slots, victims.c makes room, and growth.c assigns free slots. */
#ifndef GRADPOOL_PACKER_ELASTIC_INTERNAL_H
#define GRADPOOL_PACKER_ELASTIC_INTERNAL_H

#include "packer/elastic/curve.h"
#include "packer/elastic/scheduler.h"

#define PACE_PROBES 31 /* number of last probes for the median */

enum roster_phase { ROSTER_PROBING, ROSTER_SILENT, ROSTER_REPORTED };

enum roster_slot_state { ROSTER_FREE, ROSTER_HELD, ROSTER_LEAVING, ROSTER_LOST };

struct roster_tenant {
    uint32_t id, slots; /* slots: number of slots of workers that do not leave */
};

/* Speed and failures of a job, and limits of its growth. */
struct roster_history {
    struct curve curve;
    uint32_t lanes_workers; /* maximum number of workers that the lanes can serve; 0: no limit */
    uint32_t cap;           /* no growth above this number, which was undone before (F4); 0: none */
    double cap_step_s;      /* step time when the cap was set */
    /* number of workers before the last growth, until it is measured; 0: none */
    uint32_t grown_from;
    /* step time before that growth; promised f(now)/f(before) */
    double grown_from_step_s, promised;
    uint32_t failures; /* number of lost workers since the last completed step */
    uint64_t start_after_ns;
};

struct roster_job {
    struct scheduler_job wants;
    struct roster_tenant *tenant;
    struct roster_history *history;
    enum scheduler_state state;
    enum roster_phase phase;
    bool is_ending, rests_by_order;
    bool has_processes; /* the processes of the resting job sleep, so GO_ON is possible */
    uint32_t workers, leaving;
    uint32_t giving; /* number of workers that the present plan of victims.c removes */
    uint32_t rung;
    uint64_t step;
    double value; /* last reported value; NaN: none, or the worst */
    /* time of submission; of equal times the first in the array is the earlier */
    uint64_t submitted_ns;
    uint64_t since_ns;   /* start of the present state */
    uint64_t changed_ns; /* time of the last change of workers; the hold time starts here */
};

struct roster_slot {
    enum roster_slot_state state;
    struct roster_job *job;
    uint32_t rank;
};

struct pace {
    uint64_t probes_ns[PACE_PROBES];
    uint32_t count, next;
    uint64_t median_ns; /* 0: no probe yet */
    double resize_s;    /* smoothed pause of a change */
};

/* Tenants and studies are never deleted: the shape of a study serves its later trials. */
struct roster_known {
    struct roster_tenant **tenants;
    size_t tenants_count;
    struct curve_study **studies;
    size_t studies_count;
};

/* A possible growth of a job by one worker (growth.c). */
struct growth_bid {
    struct roster_job *job;
    uint32_t workers; /* number of workers, with slots assigned in this decision */
    double gain;      /* 0: no gain */
};

/* A job that may need slots in this decision (needs.c). */
struct needs_entry {
    struct roster_job *job; /* NULL: served or skipped */
    int class;
};

struct scheduler {
    struct scheduler_options options;
    uint64_t now_ns;
    struct roster_job **jobs; /* sorted by time of submission */
    size_t jobs_count;
    struct growth_bid *bids;   /* buffer for all jobs */
    struct needs_entry *needs; /* buffer for all jobs */
    struct roster_slot *slots;
    uint32_t slots_count;
    struct roster_known *known;
    struct scheduler_action *actions;
    size_t actions_count, actions_room;
    struct pace *pace;
    uint32_t set_aside; /* number of slots of ended jobs (`wastes_ended`) */
    uint64_t reports_ignored;
};

/* --- roster.c: jobs and slots; each change appends its actions to reserved memory --- */

struct roster_job *roster_find(const struct scheduler *s, uint32_t id);
/* -ENOMEM: nothing has changed. */
int roster_add(struct scheduler *s, const struct scheduler_job *wants);
/* Removes the job; its slots become free. */
void roster_remove(struct scheduler *s, struct roster_job *job);
/* Reserves memory for all actions of one decision. -ENOMEM. */
int roster_reserve_actions(struct scheduler *s);
int roster_reserve_slots(struct scheduler *s, uint32_t count);

uint32_t roster_count(const struct scheduler *s, enum roster_slot_state state);
/* Starts `count` workers of a waiting or active job on free slots, or wakes a resting job there. */
void roster_place(struct scheduler *s, struct roster_job *job, uint32_t count);
/* Appends LEAVE for the highest rank. */
void roster_ask_to_leave(struct scheduler *s, struct roster_job *job);
void roster_ask_to_rest(struct scheduler *s, struct roster_job *job);
/* Returns the slot of the rank, or NULL. */
struct roster_slot *roster_slot_of(struct scheduler *s, const struct roster_job *job,
                                   uint32_t rank);
/* Records that the worker on the slot has ended. */
void roster_vacate(struct scheduler *s, struct roster_slot *slot, enum roster_slot_state state);
void roster_tell_lanes(struct scheduler *s, const struct roster_job *job, uint32_t workers);

static inline bool roster_is_probing(const struct roster_job *job)
{
    return job->state == SCHEDULER_ACTIVE && job->phase == ROSTER_PROBING;
}

/* Returns the number of slots that no other job can get before a report or a border (F3). */
static inline uint32_t roster_firm_workers(const struct roster_job *job)
{
    if (job->state != SCHEDULER_ACTIVE)
        return 0;
    if (job->wants.is_stage || job->workers < job->wants.workers_min)
        return job->workers;
    return job->phase == ROSTER_PROBING ? job->wants.workers_min : 0;
}

/* --- pace.c: times from the median probe (F5, F7) --- */

void pace_add(struct pace *pace, uint64_t probe_ns);
uint64_t pace_hold_ns(const struct scheduler *s);
uint64_t pace_held_until_ns(const struct scheduler *s, const struct roster_job *job);
uint64_t pace_quantum_ns(const struct scheduler *s);
uint64_t pace_silent_ns(const struct scheduler *s);
uint64_t pace_rest_max_ns(const struct scheduler *s);

/* --- victims.c: room for a job that has none (F2, F3) --- */

/* Ways to make room, tried in this order. */
enum victims_way { VICTIMS_SHRINK = 1, VICTIMS_REST = 2, VICTIMS_PROBE_NARROWER = 4 };

/* Plans `count` free slots for `job` in the allowed ways: all or nothing. Returns the number of
 * slots that will become free, at least `count`, or 0. */
uint32_t victims_make_room(struct scheduler *s, const struct roster_job *job, uint32_t count,
                           unsigned ways);
/* Makes the best victim for `job` rest (F3). Returns its number of workers, or 0. */
uint32_t victims_rest_one(struct scheduler *s, const struct roster_job *job);
/* Returns the running job that would release the next worker for `job` (F2), and its loss; NULL:
 * none. */
struct roster_job *victims_find(const struct scheduler *s, const struct roster_job *job,
                                double *ret_loss);

/* --- needs.c: overdue rests, the queue, other rests (F4, F6, F8) --- */

/* Slots without a worker, and slots of leaving workers, without those that are kept for a job. */
struct needs_room {
    uint32_t free, coming;
    bool has_waiting; /* whether a waiting job could not be served: then no job grows */
};

/* The loop over all jobs in need, in one decision. */
struct needs_walk {
    struct needs_room room;
    size_t count;         /* number of entries in `needs` */
    bool has_rests;       /* whether a job rests without an operator's order */
    bool is_behind_rests; /* whether the queue waits for other rests */
    uint32_t usable;      /* number of slots that are not lost */
    uint32_t firm;        /* number of slots that no other job can get, including kept ones (F3) */
};

/* Serves jobs below their minimum, overdue rests, and the queue. */
void needs_serve(struct scheduler *s, struct needs_walk *ret_walk);
/* Serves other rests, and then the queue again if it has waited for them. */
void needs_serve_rests(struct scheduler *s, struct needs_walk *walk);
uint32_t needs_usable_slots(const struct scheduler *s);
bool needs_rest_is_overdue(const struct scheduler *s, const struct roster_job *job);

/* --- growth.c: free slots to running jobs (F4) --- */

/* Grows probing jobs first, within their part of the site; running jobs shrink or rest for this. */
void growth_probe(struct scheduler *s, struct needs_room *room);
void growth_share_out(struct scheduler *s, struct needs_room room);
/* Handles a measured step time: growth with less than half of the promised gain is undone. */
void growth_measure(struct scheduler *s, struct roster_job *job, uint32_t workers, double step_s);

#endif
