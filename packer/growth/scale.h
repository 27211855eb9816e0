/* Decides when lanes open and park, when aggregators start and stop, and which tasks move for it.
 * PURE: no clock; the caller owns the state, which begins as all zeros. RULES.md: G1 to G13.
 *
 * scale_tick() is called once a window with the state of lanes, jobs and tasks, and returns at most
 * one decision. The caller carries it out, and marks the lanes and jobs of an unfinished decision
 * as is_changing and is_moving. */
#ifndef GRADPOOL_PACKER_GROWTH_SCALE_H
#define GRADPOOL_PACKER_GROWTH_SCALE_H

#include <stdbool.h>

#include "packer/packer.h"

/* A job above its limit for this many windows is relieved (G4). */
#define SCALE_OVER_WINDOWS UINT32_C(3)
/* Lanes of a relieved job may drain after this many windows within its limit (G8). */
#define SCALE_CALM_WINDOWS UINT32_C(60)
/* Lanes stay reserved this long for a job that is measured alone or in a trial (G11, G12). */
#define SCALE_ALONE_WINDOWS UINT32_C(60)
/* A trial that ended without a verdict is not repeated for this many windows (G12). */
#define SCALE_TRIAL_REST_WINDOWS UINT32_C(960)
/* Each relief doubles SCALE_OVER_WINDOWS and SCALE_CALM_WINDOWS of its job, up to this many. */
#define SCALE_RELIEFS_MAX UINT32_C(6)
/* Windows between a move of tasks and the next drain, trial or measurement (G7, G11, G12). */
#define SCALE_SETTLE_WINDOWS UINT32_C(3)
#define SCALE_MARGIN_PPM 10000 /* a drain plans with every limit stricter by this much */
#define SCALE_LOW_PPM 700000   /* 0.8 of the share that 64 equal jobs may take of a lane at 5 % */
#define SCALE_STEP_NS_MAX UINT64_C(10000000000) /* most time that one call adds to a hold time */
/* Without measured waits, lanes explain a loss up to this many times the rule's loss (G4). */
#define SCALE_EXPLAINS 3
#define SCALE_TRIES 4 /* jobs or lanes for which one call makes plans */

/* 0 in a field: the default, which the comment of the field names last. */
struct scale_options {
    const char *policy;       /* policy with a rule of loss; "shared" */
    uint32_t lanes_min;       /* lanes that always stay open; 1 */
    uint32_t lanes_max;       /* most open lanes; no bound */
    uint32_t lanes_spare;     /* lanes kept open without a job for the next unmeasured job; none */
    uint32_t low_ppm;         /* load of a used lane below which a drain may begin; SCALE_LOW_PPM */
    uint64_t drain_hold_ns;   /* time of low load before a drain; 30 s */
    uint64_t park_hold_ns;    /* time of a surplus lane before it parks; 10 s */
    uint64_t stop_hold_ns;    /* time without an open lane before an aggregator stops; 300 s */
    uint64_t drain_bytes_max; /* most bytes that a drain or a trial moves; 4 GiB */
};

/* Result of the last attempt to relieve a job above its limit. */
enum scale_stay {
    SCALE_STAY_NOT,         /* no attempt yet, relieved, or within the limit again */
    SCALE_STAY_UNEXPLAINED, /* other jobs on the lanes explain too little of the loss */
    SCALE_STAY_NO_LANE,     /* no placement on other lanes keeps every job within its limit */
};

/* State of a job that lasts from window to window. */
struct scale_memory {
    uint32_t over;    /* windows in a row above the limit */
    uint32_t within;  /* windows in a row within the limit */
    uint32_t reliefs; /* recent reliefs, up to SCALE_RELIEFS_MAX; forgotten by G8 */
    enum scale_stay stay;
    uint32_t explained_ppm; /* loss that lanes explain, measured or by the rule; with `stay` */
    uint32_t shares;        /* windows in a row of wants_alone on lanes with other jobs */
    uint32_t alone;         /* windows in a row of wants_alone on lanes without another job */
    uint32_t measures;      /* moves to lanes of its own for a measurement (G11) */
    uint32_t narrowed;     /* windows since a trial last moved the job; 0: no trial goes on (G12) */
    uint32_t narrow_to;    /* number of lanes of the last trial */
    uint32_t narrow_fails; /* trials in a row that did not reach their number of lanes */
    uint32_t narrow_wait;  /* windows until the next trial may begin */
};

struct scale_job {
    uint64_t id;
    uint32_t workers;
    uint32_t loss_ppm;           /* measured loss; 0 also when it is not known */
    uint32_t shared_ppm;         /* part of the loss from waits behind other jobs on lanes */
    bool knows_shared;           /* shared_ppm was measured */
    struct packer_timing timing; /* period_ns 0: not measured */
    bool is_moving;              /* a migration of the job's tasks is under way */
    bool is_ordered;             /* an operator's order pins the tasks to their lanes (G13) */
    bool wants_alone;            /* the job trains, and its period alone is unknown (G11) */
    uint32_t lanes_enough;       /* fewest lanes known to be enough; 0: no trials (G12) */
    uint32_t lanes_next;         /* fewer lanes for the next trial; 0: no trial */
    struct scale_memory *memory; /* the caller keeps it as long as the job */
};

struct scale_lane {
    /* As for packer_place(). jobs, load_bytes, job_bytes, job_lane_ns and residents are ignored:
     * they follow from the tasks. load_ppm is that of the last window. */
    struct packer_lane lane;
    uint32_t aggregator;
    bool is_changing; /* the lane is being opened, started, drained or parked */
    bool is_kept;     /* the caller may not stop the lane's aggregator */
    bool is_awaited;  /* tasks move to the lane: it counts as a lane with tasks */
};

struct scale_task {
    uint32_t job, lane; /* positions */
    uint64_t bytes;
    uint64_t lane_ns;                 /* lane time a round */
    uint64_t state_bytes, wire_bytes; /* as in struct packer_tensor */
};

/* A job that waits for lanes, because the open lanes cannot take it. */
struct scale_wish {
    uint64_t job;
    uint32_t lanes; /* lanes wanted in addition to the open ones */
};

struct scale_seen {
    const struct scale_lane *lanes; /* ascending ids */
    size_t lanes_count;
    const struct scale_job *jobs;
    size_t jobs_count;
    const struct scale_task *tasks;
    size_t tasks_count;
    const struct scale_wish *wishes;
    size_t wishes_count;
    const struct packer_node *nodes; /* as in struct packer_request */
    size_t nodes_count;
};

enum scale_verb {
    SCALE_NOTHING,
    SCALE_OPEN,    /* open the parked `lanes` */
    SCALE_START,   /* start `aggregator` with `lanes` open */
    SCALE_NARROW,  /* open the parked `lanes`, then `moves` put `job` on fewer or more lanes */
    SCALE_MEASURE, /* open the parked `lanes`, then `moves` take `job` off its shared lanes */
    SCALE_RELIEVE, /* open the parked `lanes`, then `moves` take `job` off `lane` */
    SCALE_DRAIN,   /* `moves` empty `lane`; the caller places nothing new there */
    SCALE_PARK,    /* park `lanes`, which have no tasks */
    SCALE_STOP,    /* stop `aggregator`, which has no open lane */
};

struct scale_move {
    uint32_t task;   /* position */
    uint32_t target; /* id of the lane */
};

struct scale_decision {
    enum scale_verb verb;
    uint32_t aggregator;
    uint32_t lane;   /* id */
    uint64_t job;    /* id of the job that the decision is for; 0: none */
    uint32_t *lanes; /* ids, ascending */
    size_t lanes_count;
    struct scale_move *moves; /* ascending by task */
    size_t moves_count;
    char reason[256]; /* one sentence, for SCALE_NOTHING too */
};

struct scale {
    bool has_begun;
    uint64_t last_ns;
    uint32_t settle;   /* windows until tasks may move for a drain (G7) */
    uint64_t low_ns;   /* time since the load is low */
    uint64_t idle_ns;  /* time since there are surplus lanes */
    size_t idle_lanes; /* least number of surplus lanes during idle_ns */
    uint64_t rest_ns;  /* time since there are aggregators to stop */
    size_t resting;    /* least number of aggregators to stop during rest_ns */
};

/* Call scale_decision_fini() on the decision. -EINVAL: `seen` is inconsistent, the state is
 * unchanged; -ENOMEM: the window counts, without a decision. An error leaves `ret_decision`
 * unchanged. */
int scale_tick(struct scale *scale, const struct scale_options *options,
               const struct scale_seen *seen, uint64_t now_ns, struct scale_decision *ret_decision);
void scale_decision_fini(struct scale_decision *decision);

#endif
