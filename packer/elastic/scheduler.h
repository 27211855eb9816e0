/* scheduler: which trials of a site run, with how many workers, on which slots (F1 to F8 of
 * README.md). PURE: no clock; a state and an event give actions. A reconstruction from the abstract
 * of EPS, with rests and stages of our own; not the paper's rule.
 *
 * A site is a number of slots; a slot has room for one worker. The caller carries out the actions
 * in their order and reports each worker that came or went. */
#ifndef GRADPOOL_PACKER_ELASTIC_SCHEDULER_H
#define GRADPOOL_PACKER_ELASTIC_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCHEDULER_WORKERS_MAX 1024                      /* of one job */
#define SCHEDULER_SLOTS_MAX 65536                       /* of one site */
#define SCHEDULER_RESTING_MAX 64                        /* resting jobs that keep their processes */
#define SCHEDULER_REST_MAX_NS UINT64_C(600000000000)    /* longer rests are overdue */
#define SCHEDULER_HOLD_MAX_NS UINT64_C(120000000000)    /* F5 */
#define SCHEDULER_HOLD_FIRST_NS UINT64_C(60000000000)   /* F5, before a probe was seen */
#define SCHEDULER_SILENT_MAX_NS UINT64_C(1200000000000) /* F7, before a probe was seen */
#define SCHEDULER_RESIZE_NS UINT64_C(50000000)          /* pause of a change, before one was seen */

/* 0 in a field means its default. */
struct scheduler_options {
    uint32_t slots;
    uint32_t resting_max;
    uint64_t hold_ns, quantum_ns; /* fixed; default: from the median probe time (F5) */
    uint64_t rest_max_ns, resize_ns;
    bool never_rests;  /* EPS without F3: an arrival without a victim waits */
    bool holds_growth; /* a change also keeps a job from growing for the hold time */
    bool wastes_ended; /* baseline: slots of an ended job serve arrivals, never growth */
};

struct scheduler_job {
    uint32_t id, tenant, study;
    uint32_t workers_min, workers_max; /* 1 <= min <= max */
    uint64_t steps;                    /* of the whole training; 0: not known */
    bool is_stage; /* changes at its borders only: neither grows, shrinks nor rests (F8) */
};

enum scheduler_kind {
    SCHEDULER_TICK,
    SCHEDULER_SUBMITTED,   /* `submitted` */
    SCHEDULER_REPORTED,    /* job, step, rung, value */
    SCHEDULER_ENDED,       /* job: its processes are gone; verdict, end of training, or failure */
    SCHEDULER_END_ORDERED, /* job: its workers are asked to leave; the last one out ends it */
    SCHEDULER_REST_ORDERED,
    SCHEDULER_GO_ON_ORDERED,
    SCHEDULER_WORKER_IN,   /* job, rank; pause_s of the others, 0: none seen */
    SCHEDULER_WORKER_OUT,  /* job, rank: its slot is free; left, rests, or was lost */
    SCHEDULER_MEASURED,    /* job, workers, step_s; lane_s and lanes, 0: no lanes */
    SCHEDULER_LANES_LIMIT, /* job, workers: the most that lanes carry; 0: no limit */
    SCHEDULER_SLOT_FOUND,  /* slot: a lost one, or the next new number */
    SCHEDULER_SLOT_LOST,   /* slot: its worker is gone, too */
};

struct scheduler_event {
    enum scheduler_kind kind;
    uint64_t now_ns; /* never falls */
    const struct scheduler_job *submitted;
    uint32_t job, rank, slot, workers, lanes, rung;
    uint64_t step;
    double value; /* the lower, the better; NaN: the worst */
    double step_s, lane_s, pause_s;
};

enum scheduler_verb {
    SCHEDULER_START, /* job, rank, slot: a new process */
    SCHEDULER_LEAVE, /* job, rank, slot: the process ends after its shares */
    SCHEDULER_REST,  /* job: every rank below workers_min sleeps, the others leave */
    SCHEDULER_GO_ON, /* job, rank, slot: a sleeping process works again */
    SCHEDULER_LANES, /* job, workers: lane time for so many, before a START, after a LEAVE */
};

struct scheduler_action {
    enum scheduler_verb verb;
    uint32_t job, rank, slot, workers;
    bool ends_processes;  /* REST: snapshot and end, because too many jobs rest */
    double before, after; /* speed of the job by the change, in one-worker speeds */
};

enum scheduler_state {
    SCHEDULER_WAITING, /* in the queue */
    SCHEDULER_ACTIVE,
    SCHEDULER_RESTING, /* also on its way to rest */
};

struct scheduler_view {
    enum scheduler_state state;
    bool is_probing;           /* no report yet, and not silent for long */
    uint32_t workers, leaving; /* workers without those asked to leave; these */
    uint32_t rung;
    uint64_t submitted_ns, state_since_ns;
};

struct scheduler_totals {
    uint32_t slots, free, jobs, waiting, probing, running, resting, overdue;
    uint64_t reports_ignored;               /* steps backwards */
    uint64_t hold_ns, quantum_ns, probe_ns; /* F5; probe_ns: median, 0: none seen */
};

struct scheduler;

/* NULL: no memory. Slots 0, 1, ... are free. */
struct scheduler *scheduler_create(const struct scheduler_options *options);
void scheduler_destroy(struct scheduler *scheduler); /* takes NULL */

/* Applies an event and decides. Returns the number of actions; `ret_actions` (may be NULL) points
 * to them until the next call. An error leaves the state as before the event:
 *   -EINVAL  a job, number of workers, rank, slot or time that cannot be
 *   -ENOSPC  submitted with more workers_min than slots
 *   -EEXIST  submitted with the id of another job
 *   -ENOENT  no such job, or no such worker of the job
 *   -ENOMEM
 * Cost: jobs + slots for each worker that changes place. */
int scheduler_step(struct scheduler *scheduler, const struct scheduler_event *event,
                   const struct scheduler_action **ret_actions);

/* First time after the last event at which a TICK may decide something; UINT64_MAX: none. */
uint64_t scheduler_wake_ns(const struct scheduler *scheduler);

int scheduler_view(const struct scheduler *scheduler, uint32_t job,
                   struct scheduler_view *ret_view);
struct scheduler_totals scheduler_totals(const struct scheduler *scheduler);
/* Holder of a slot: false: nobody, or the slot is lost or unknown. */
bool scheduler_holder(const struct scheduler *scheduler, uint32_t slot, uint32_t *ret_job,
                      uint32_t *ret_rank);

#endif
