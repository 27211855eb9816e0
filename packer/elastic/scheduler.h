/* scheduler: decides which trials of a site run, with how many workers, on which slots (F1 to F8 of
 * README.md). PURE: no clock; a state and an event give actions. The rules are a reconstruction
 * from the abstract of EPS; rests and stages are our own.
 *
 * A site is a number of slots; a slot has room for one worker. The caller does the actions in their
 * order, and reports each worker that started or ended. */
#ifndef GRADPOOL_PACKER_ELASTIC_SCHEDULER_H
#define GRADPOOL_PACKER_ELASTIC_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCHEDULER_WORKERS_MAX 1024 /* maximum number of workers of a job */
#define SCHEDULER_SLOTS_MAX 65536  /* maximum number of slots of a site */
/* maximum number of resting jobs with sleeping processes */
#define SCHEDULER_RESTING_MAX 64
/* time for which slots stay free for announced jobs */
#define SCHEDULER_FOLLOW_NS UINT64_C(10000000000)
/* longest rest that is not overdue */
#define SCHEDULER_REST_MAX_NS UINT64_C(600000000000)
#define SCHEDULER_HOLD_MAX_NS UINT64_C(120000000000) /* longest hold time (F5) */
/* hold time until the first report of any job (F5) */
#define SCHEDULER_HOLD_FIRST_NS UINT64_C(60000000000)
/* longest silence of a job until the first report of any job (F7) */
#define SCHEDULER_SILENT_MAX_NS UINT64_C(1200000000000)
/* pause of a change of workers that is assumed until a pause was measured */
#define SCHEDULER_RESIZE_NS UINT64_C(50000000)

/* A field with the value 0 gets its default. */
struct scheduler_options {
    uint32_t slots;
    uint32_t resting_max;
    /* fixed times; default: computed from the median probe time (F5) */
    uint64_t hold_ns, quantum_ns;
    uint64_t rest_max_ns, resize_ns;
    /* true (baseline: EPS without F3): no job rests, so a new job may have to wait */
    bool never_rests;
    /* the caller ends no processes at a rest: if `resting_max` jobs rest, others rest by order of
     * their users alone */
    bool keeps_processes;
    bool holds_growth; /* whether a change also delays growth of the job by the hold time */
    /* true (baseline): slots of an ended job are used for new jobs, never for growth */
    bool wastes_ended;
};

struct scheduler_job {
    uint32_t id, tenant, study;
    uint32_t workers_min, workers_max; /* limits of the workers: 1 <= min <= max */
    uint64_t steps;                    /* number of steps of the whole training; 0: unknown */
    /* a stage never grows, shrinks or rests; it changes only at its start and end (F8) */
    bool is_stage;
    /* the job rests only by order of its user */
    bool never_rests;
    /* the job gets no worker and releases no worker; without workers the job stays in the queue
     * (F13) */
    bool is_held;
};

enum scheduler_kind {
    SCHEDULER_TICK,
    /* a job was submitted: field `submitted`; followers: number of jobs of the same tenant and
     * study, with the same workers_min, that the caller submits next: no job grows on their slots
     * (F4) */
    SCHEDULER_SUBMITTED,
    SCHEDULER_REPORTED, /* a job has sent a report: fields job, step, rung, value */
    SCHEDULER_STANDING, /* fields job, rung, value: replaces both, and is no report */
    /* field job: the job's processes have ended, because of a verdict, the end of training, or a
     * failure */
    SCHEDULER_ENDED,
    /* field job: the workers are ordered to leave, and the job ends with its last worker */
    SCHEDULER_END_ORDERED,
    SCHEDULER_REST_ORDERED,
    SCHEDULER_GO_ON_ORDERED,
    /* fields job, rank: the worker has started; pause_s: pause of the other workers, 0: no pause */
    SCHEDULER_WORKER_IN,
    /* fields job, rank: the worker left, rests or was lost, and its slot is free */
    SCHEDULER_WORKER_OUT,
    /* fields job, workers, step_s, lane_s, lanes; lanes is 0 if the job uses no lane */
    SCHEDULER_MEASURED,
    /* fields job, workers: maximum number of workers that the lanes can serve; 0: no limit */
    SCHEDULER_LANES_LIMIT,
    /* field slot: a lost slot is usable again, or the site has a new slot with the next number */
    SCHEDULER_SLOT_FOUND,
    SCHEDULER_SLOT_LOST, /* field slot: the slot and its worker are lost */
    SCHEDULER_HELD,      /* fields job, is_held: a hold of the job begins or ends (F13) */
    /* fields job, rank, slot: a worker of a held job already runs on this free slot */
    SCHEDULER_WORKER_FOUND,
    /* field job: the workers of a held job sleep already, or will sleep */
    SCHEDULER_REST_FOUND,
    SCHEDULER_MAY_REST, /* fields job, may_rest: sets `never_rests` of the job */
};

struct scheduler_event {
    enum scheduler_kind kind;
    uint64_t now_ns; /* present time; never decreases */
    const struct scheduler_job *submitted;
    uint32_t job, rank, slot, workers, lanes, rung, followers;
    uint64_t step;
    double value; /* reported value of the trial: lower is better; NaN is the worst */
    double step_s, lane_s, pause_s;
    bool is_held, may_rest;
};

enum scheduler_verb {
    SCHEDULER_START, /* job, rank, slot: start a process */
    SCHEDULER_LEAVE, /* job, rank, slot: end the process when its shares of the step are done */
    SCHEDULER_REST,  /* job: ranks below workers_min sleep, higher ranks end */
    SCHEDULER_GO_ON, /* job, rank, slot: wake the sleeping process */
    /* job, workers: reserve lane time for this number of workers, before a START or after a
     * LEAVE */
    SCHEDULER_LANES,
};

struct scheduler_action {
    enum scheduler_verb verb;
    uint32_t job, rank, slot, workers;
    /* with REST: the job writes a snapshot and ends, because too many jobs rest */
    bool ends_processes;
    /* speed of the job before and after the change, in speeds of one worker */
    double before, after;
};

enum scheduler_state {
    SCHEDULER_WAITING, /* the job is in the queue */
    SCHEDULER_ACTIVE,
    SCHEDULER_RESTING, /* the job rests, or its workers are leaving because the job will rest */
};

struct scheduler_view {
    enum scheduler_state state;
    /* the job has sent no report yet, and does not count as silent */
    bool is_probing;
    bool rests_by_order;       /* the rest ends by order of the user alone */
    uint32_t workers, leaving; /* number of workers that stay; number of workers that are leaving */
    uint32_t rung;
    uint64_t submitted_ns, state_since_ns;
};

struct scheduler_totals {
    uint32_t slots, free, jobs, waiting, probing, running, resting, overdue;
    uint64_t reports_ignored; /* number of reports that had a lower step than an earlier report */
    /* present hold time and quantum (F5); probe_ns: median probe time, 0: no probe yet */
    uint64_t hold_ns, quantum_ns, probe_ns;
};

struct scheduler;

/* Creates a site whose slots are all free. Returns NULL if memory is short. */
struct scheduler *scheduler_create(const struct scheduler_options *options);
void scheduler_destroy(struct scheduler *scheduler); /* NULL is allowed */

/* Applies an event and decides. Returns the number of actions; `ret_actions` (may be NULL) points
 * to them until the next call. An error leaves the state as before the event:
 *
 *   -EINVAL  an impossible job, number of workers, rank, slot or time
 *   -ENOSPC  workers_min of the submitted job exceeds the slots of the site
 *   -EEXIST  another job has the submitted id
 *   -ENOENT  no such job, or no such worker of the job
 *   -ENOMEM
 *
 * Cost: in proportion to jobs + slots, for each worker that moves. */
int scheduler_step(struct scheduler *scheduler, const struct scheduler_event *event,
                   const struct scheduler_action **ret_actions);

/* Returns the next time at which a TICK may cause a decision if no other event comes before;
 * UINT64_MAX: there is no such time. */
uint64_t scheduler_wake_ns(const struct scheduler *scheduler);

int scheduler_view(const struct scheduler *scheduler, uint32_t job,
                   struct scheduler_view *ret_view);
struct scheduler_totals scheduler_totals(const struct scheduler *scheduler);
/* Returns the job and rank of a slot. Returns false if the slot is free, lost or unknown. */
bool scheduler_holder(const struct scheduler *scheduler, uint32_t slot, uint32_t *ret_job,
                      uint32_t *ret_rank);

#endif
