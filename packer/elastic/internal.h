/* State of the scheduler, shared by the files of this folder. scheduler.c applies events, needs.c
 * serves jobs without slots, victims.c makes room, and growth.c assigns free slots. */
#ifndef GRADPOOL_PACKER_ELASTIC_INTERNAL_H
#define GRADPOOL_PACKER_ELASTIC_INTERNAL_H

#include "packer/elastic/curve.h"
#include "packer/elastic/scheduler.h"

#define PACE_PROBES 31 /* number of newest probes from which the median probe time is computed */

enum roster_phase { ROSTER_PROBING, ROSTER_SILENT, ROSTER_REPORTED };

enum roster_slot_state { ROSTER_FREE, ROSTER_HELD, ROSTER_LEAVING, ROSTER_LOST };

struct roster_tenant {
    uint32_t id, slots; /* slots: number of slots with a worker that is not leaving */
};

/* Speed and failures of a job, and limits of its growth. */
struct roster_history {
    struct curve curve;
    uint32_t lanes_workers; /* maximum number of workers that the lanes can serve; 0: no limit */
    uint32_t cap; /* maximum number of workers, set when growth was undone (F4); 0: no maximum */
    double cap_step_s; /* step time when the cap was set */
    /* number of workers before the last growth; 0: the job has not grown, or the gain was
     * measured */
    uint32_t grown_from;
    /* step time before the last growth, and promised ratio of the speeds after and before this
     * growth */
    double grown_from_step_s, promised;
    uint32_t failures;  /* number of lost workers since the last completed step */
    uint32_t followers; /* number of jobs that were announced with this one */
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
    double value; /* last reported value; NaN: no report, or the worst value */
    /* time of submission; of two jobs with equal times, the one submitted first comes first in
     * `jobs` */
    uint64_t submitted_ns;
    uint64_t since_ns;   /* start of the present state */
    uint64_t changed_ns; /* time of the last change of workers, at which the hold time starts */
};

struct roster_slot {
    enum roster_slot_state state;
    struct roster_job *job;
    uint32_t rank;
};

struct pace {
    uint64_t probes_ns[PACE_PROBES];
    uint32_t count, next;
    uint64_t median_ns; /* median probe time; 0: no probe yet */
    /* smoothed time in seconds in which a job makes no steps while its workers change */
    double resize_s;
};

#define ROSTER_IDLE_MAX 1024 /* maximum number of studies without a job */

/* Tenants stay as long as the scheduler. Studies without a job stay, too, because later trials use
 * their shape; if there are too many such studies, the study whose last job ended first is
 * dropped. */
struct roster_known {
    struct roster_tenant **tenants;
    size_t tenants_count;
    struct curve_study *
        *studies; /* studies without a job are ordered by the end of their last job */
    size_t studies_count;
};

/* A possible growth of a job by one worker (growth.c). */
struct growth_bid {
    struct roster_job *job;
    uint32_t workers; /* number of workers, including those assigned in this decision */
    double gain;      /* relative gain of speed by one more worker; 0: no gain */
};

/* A job that may need slots in this decision (needs.c). */
struct needs_entry {
    struct roster_job *job; /* NULL: the job was served or skipped */
    int class;
};

struct scheduler {
    struct scheduler_options options;
    uint64_t now_ns;
    struct roster_job **jobs; /* all jobs, in order of their submission */
    size_t jobs_count;
    struct growth_bid *bids;   /* buffer for all jobs */
    struct needs_entry *needs; /* buffer for all jobs */
    struct roster_slot *slots;
    uint32_t slots_count;
    struct roster_known *known;
    struct scheduler_action *actions;
    size_t actions_count, actions_room;
    struct pace *pace;
    /* number of free slots of ended jobs, not used for growth (`wastes_ended`) */
    uint32_t set_aside;
    uint64_t reports_ignored;
};

/* --- roster.c: jobs and slots; each change appends its actions to reserved memory --- */

struct roster_job *roster_find(const struct scheduler *s, uint32_t id);
/* Adds a job. -ENOMEM: nothing has changed. */
int roster_add(struct scheduler *s, const struct scheduler_job *wants);
/* Removes the job; its slots become free. */
void roster_remove(struct scheduler *s, struct roster_job *job);
/* Reserves memory for all actions of one decision. -ENOMEM. */
int roster_reserve_actions(struct scheduler *s);
int roster_reserve_slots(struct scheduler *s, uint32_t count);

uint32_t roster_count(const struct scheduler *s, enum roster_slot_state state);
/* Starts `count` workers of a waiting or active job on free slots, or wakes a resting job on these
 * slots. */
void roster_place(struct scheduler *s, struct roster_job *job, uint32_t count);
/* Adds a running worker on a free slot, without an action. */
void roster_adopt(struct scheduler *s, struct roster_job *job, struct roster_slot *slot,
                  uint32_t rank);
/* Appends the action LEAVE for the highest rank of the job. */
void roster_ask_to_leave(struct scheduler *s, struct roster_job *job);
/* Returns whether as many jobs sleep as may sleep (`resting_max`). `more`: jobs that will sleep. */
bool roster_has_all_asleep(const struct scheduler *s, uint32_t more);
void roster_ask_to_rest(struct scheduler *s, struct roster_job *job);
/* Makes the job rest without an action: its processes sleep, or are about to. */
void roster_find_rest(struct scheduler *s, struct roster_job *job);
/* Returns whether a job exists that may rest without an order of its user. */
bool roster_some_may_rest(const struct scheduler *s);
/* Returns the slot of the rank, or NULL. */
struct roster_slot *roster_slot_of(struct scheduler *s, const struct roster_job *job,
                                   uint32_t rank);
/* Records that the worker on the slot has ended. */
void roster_vacate(struct scheduler *s, struct roster_slot *slot, enum roster_slot_state state);
void roster_request_lanes(struct scheduler *s, const struct roster_job *job, uint32_t workers);

static inline bool roster_is_probing(const struct roster_job *job)
{
    return job->state == SCHEDULER_ACTIVE && job->phase == ROSTER_PROBING;
}

/* Returns the number of slots that no other job can get: a probing job keeps its slots until its
 * first report, a stage until its end, a held job until the end of the hold (F3, F13). */
static inline uint32_t roster_kept_workers(const struct roster_job *job)
{
    if (job->state != SCHEDULER_ACTIVE)
        return 0;
    if (job->wants.is_stage || job->wants.is_held || job->workers < job->wants.workers_min)
        return job->workers;
    return job->phase == ROSTER_PROBING ? job->wants.workers_min : 0;
}

/* --- pace.c: times computed from the median probe time (F5, F7) --- */

void pace_add(struct pace *pace, uint64_t probe_ns);
uint64_t pace_hold_ns(const struct scheduler *s);
uint64_t pace_held_until_ns(const struct scheduler *s, const struct roster_job *job);
uint64_t pace_quantum_ns(const struct scheduler *s);
uint64_t pace_silent_ns(const struct scheduler *s);
uint64_t pace_rest_max_ns(const struct scheduler *s);

/* --- victims.c: slots for a job with too few (F2, F3) --- */

/* Ways to make room, tried in this order. */
enum victims_way { VICTIMS_SHRINK = 1, VICTIMS_REST = 2, VICTIMS_PROBE_NARROWER = 4 };

/* Orders workers to leave until `count` more slots will become free for `job`, in the allowed ways.
 * Returns the number of slots that will become free; 0: fewer than `count` are possible, and no
 * worker was ordered to leave. */
uint32_t victims_make_room(struct scheduler *s, const struct roster_job *job, uint32_t count,
                           unsigned ways);
/* Orders the running job that is first in the order of F3 to rest, so that `job` gets its slots.
 * Returns its number of workers; 0: no job may rest. */
uint32_t victims_rest_one(struct scheduler *s, const struct roster_job *job);
/* Returns the running job that should release the next worker for `job` (F2); NULL: none.
 * `ret_loss`: speed that this job loses. */
struct roster_job *victims_find(const struct scheduler *s, const struct roster_job *job,
                                double *ret_loss);

/* --- needs.c: slots for overdue rests, the queue and other rests (F4, F6, F8) --- */

/* Slots that are not reserved for a job. `free`: slots without a worker; `coming`: slots whose
 * worker is leaving. */
struct needs_slots {
    uint32_t free, coming;
    bool has_waiting; /* whether a job waits for slots; in this case no job grows */
};

/* State of one decision about the jobs that need slots. */
struct needs_walk {
    struct needs_slots room;
    size_t count;         /* number of entries in `needs` */
    bool has_rests;       /* whether a job rests without an operator's order */
    bool is_behind_rests; /* whether resting jobs get slots before the queue */
    uint32_t usable;      /* number of slots of the site that are not lost */
    /* number of slots that jobs surely keep (roster_kept_workers()), plus slots reserved for queued
     * jobs */
    uint32_t kept;
};

/* Assigns slots to jobs below their minimum, then to jobs that have rested too long, then to the
 * queue. */
void needs_serve(struct scheduler *s, struct needs_walk *ret_walk);
/* Assigns slots to other resting jobs, then to the queue if the queue waited for these jobs. */
void needs_serve_rests(struct scheduler *s, struct needs_walk *walk);
uint32_t needs_usable_slots(const struct scheduler *s);
/* Returns the number of slots of announced jobs, which were not submitted yet (F4). */
uint32_t needs_announced_slots(const struct scheduler *s);
bool needs_rest_is_overdue(const struct scheduler *s, const struct roster_job *job);

/* --- growth.c: free slots to running jobs (F4) --- */

/* Adds workers to probing jobs, which may have up to three quarters of the slots. Running jobs
 * shrink or rest for this growth (F3). */
void growth_probe(struct scheduler *s, struct needs_slots *room);
void growth_share_out(struct scheduler *s, struct needs_slots room);
/* Compares a measured step time with the promise of the last growth, and undoes growth with less
 * than half of the promised gain. */
void growth_measure(struct scheduler *s, struct roster_job *job, uint32_t workers, double step_s);

#endif
