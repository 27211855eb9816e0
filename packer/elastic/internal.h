/* State of the scheduler, shared by the files of this room. scheduler.c applies events; needs.c
 * serves jobs without slots, victims.c makes room, growth.c gives away free slots. */
#ifndef GRADPOOL_PACKER_ELASTIC_INTERNAL_H
#define GRADPOOL_PACKER_ELASTIC_INTERNAL_H

#include "packer/elastic/curve.h"
#include "packer/elastic/scheduler.h"

#define PACE_PROBES 31 /* last probes, of which the median counts */

enum roster_phase { ROSTER_PROBING, ROSTER_SILENT, ROSTER_REPORTED };

enum roster_slot_state { ROSTER_FREE, ROSTER_HELD, ROSTER_LEAVING, ROSTER_LOST };

struct roster_tenant {
    uint32_t id, slots; /* held by workers that were not asked to leave */
};

/* Speed and failures of a job, and the end of its growth. */
struct roster_history {
    struct curve curve;
    uint32_t lanes_workers; /* most workers that lanes carry; 0: no limit */
    uint32_t cap;           /* no growth above (F4, undone); 0: none */
    double cap_step_s;      /* step time then */
    uint32_t grown_from;    /* workers before the growth that is not measured yet; 0: none */
    double grown_from_step_s, promised; /* measured step time then; f(now)/f(then) promised */
    uint32_t failures;                  /* lost workers since the last sign of a step */
    uint64_t start_after_ns;
};

struct roster_job {
    struct scheduler_job wants;
    struct roster_tenant *tenant;
    struct roster_history *history;
    enum scheduler_state state;
    enum roster_phase phase;
    bool is_ending, rests_by_order;
    bool has_processes; /* resting: asleep, so that GO_ON is possible */
    uint32_t workers, leaving;
    uint32_t giving; /* workers that the present plan of victims.c takes; else 0 */
    uint32_t rung;
    uint64_t step;
    double value;          /* NaN: none, or the worst */
    uint64_t submitted_ns; /* of equal jobs the first in the array was submitted first */
    uint64_t since_ns;     /* begin of the state */
    uint64_t changed_ns;   /* last change of workers; begin of the hold time */
};

struct roster_slot {
    enum roster_slot_state state;
    struct roster_job *job;
    uint32_t rank;
};

struct pace {
    uint64_t probes_ns[PACE_PROBES];
    uint32_t count, next;
    uint64_t median_ns; /* 0: none */
    double resize_s;    /* pause of a change, smoothed */
};

/* Never forgotten: a study's shape serves its later trials. */
struct roster_known {
    struct roster_tenant **tenants;
    size_t tenants_count;
    struct curve_study **studies;
    size_t studies_count;
};

/* A job's wish for one more worker (growth.c). */
struct growth_bid {
    struct roster_job *job;
    uint32_t workers; /* with the slots given in this decision */
    double gain;      /* 0: none */
};

/* A job that may need slots in this decision (needs.c). */
struct needs_entry {
    struct roster_job *job; /* NULL: served, or passed over */
    int class;
};

struct scheduler {
    struct scheduler_options options;
    uint64_t now_ns;
    struct roster_job **jobs; /* in order of submission */
    size_t jobs_count;
    struct growth_bid *bids;   /* room for all jobs */
    struct needs_entry *needs; /* likewise */
    struct roster_slot *slots;
    uint32_t slots_count;
    struct roster_known *known;
    struct scheduler_action *actions;
    size_t actions_count, actions_room;
    struct pace *pace;
    uint32_t set_aside; /* slots of ended jobs (`wastes_ended`) */
    uint64_t reports_ignored;
};

/* --- roster.c: jobs and slots; each change appends its actions, whose room is reserved --- */

struct roster_job *roster_find(const struct scheduler *s, uint32_t id);
/* -ENOMEM: nothing changed. */
int roster_add(struct scheduler *s, const struct scheduler_job *wants);
/* Its slots become free. */
void roster_remove(struct scheduler *s, struct roster_job *job);
/* Room for all actions of one decision. */
int roster_reserve_actions(struct scheduler *s);
int roster_reserve_slots(struct scheduler *s, uint32_t count);

uint32_t roster_count(const struct scheduler *s, enum roster_slot_state state);
/* Starts `count` workers of a waiting or active job, or wakes a resting one, on free slots. */
void roster_place(struct scheduler *s, struct roster_job *job, uint32_t count);
/* Asks the highest rank to leave. */
void roster_ask_to_leave(struct scheduler *s, struct roster_job *job);
void roster_ask_to_rest(struct scheduler *s, struct roster_job *job);
/* The slot of the rank, or NULL. */
struct roster_slot *roster_slot_of(struct scheduler *s, const struct roster_job *job,
                                   uint32_t rank);
/* The worker on the slot is gone. */
void roster_vacate(struct scheduler *s, struct roster_slot *slot, enum roster_slot_state state);
void roster_tell_lanes(struct scheduler *s, const struct roster_job *job, uint32_t workers);

static inline bool roster_is_probing(const struct roster_job *job)
{
    return job->state == SCHEDULER_ACTIVE && job->phase == ROSTER_PROBING;
}

/* Slots that nobody can take back before a report or a border (F3). */
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

/* Ways to make room, each after the one before. */
enum victims_way { VICTIMS_SHRINK = 1, VICTIMS_REST = 2, VICTIMS_PROBE_NARROWER = 4 };

/* Asks for `count` slots for `job`, in the allowed ways: all or nothing. Returns the slots that
 * will come free, at least `count`, or 0. */
uint32_t victims_make_room(struct scheduler *s, const struct roster_job *job, uint32_t count,
                           unsigned ways);
/* Makes the job rest that is first for it (F3), for `job`. Returns its workers, or 0. */
uint32_t victims_rest_one(struct scheduler *s, const struct roster_job *job);
/* The running job that would give the next worker for `job` (F2), and its loss; NULL: none. */
struct roster_job *victims_find(const struct scheduler *s, const struct roster_job *job,
                                double *ret_loss);

/* --- needs.c: overdue rests, the queue, other rests (F4, F6, F8) --- */

/* Slots without a worker, and slots whose worker was asked to leave, that nobody keeps. */
struct needs_room {
    uint32_t free, coming;
    bool has_waiting; /* a job waits that could not be served, so that nobody grows */
};

/* The walk over the jobs in need, in one decision. */
struct needs_walk {
    struct needs_room room;
    size_t count;         /* entries of `needs` */
    bool has_rests;       /* a job rests without an order */
    bool is_behind_rests; /* the queue waits until other rests are served */
    uint32_t usable;      /* slots that are not lost */
    uint32_t firm;        /* slots that nobody can take back, kept ones included (F3) */
};

/* Jobs below their minimum, overdue rests, the queue. */
void needs_serve(struct scheduler *s, struct needs_walk *ret_walk);
/* Other rests, and the queue again where it waited for them. */
void needs_serve_rests(struct scheduler *s, struct needs_walk *walk);
uint32_t needs_usable_slots(const struct scheduler *s);
bool needs_rest_is_overdue(const struct scheduler *s, const struct roster_job *job);

/* --- growth.c: free slots to running jobs (F4) --- */

/* Probing jobs grow first, within their part of the site; running jobs shrink or rest for it. */
void growth_probe(struct scheduler *s, struct needs_room *room);
void growth_share_out(struct scheduler *s, struct needs_room room);
/* A measured step time: growth that keeps less than half of its promise is undone. */
void growth_measure(struct scheduler *s, struct roster_job *job, uint32_t workers, double step_s);

#endif
