/* When lanes open and park, aggregators start and stop, and which tasks move for it. PURE: no
 * clock; the state is the caller's plain structs, all zero to begin with. README.md: G1 to G13.
 *
 * One call a window: what was seen in it goes in, at most one decision comes out. The caller
 * carries it out, and shows lanes and jobs on which it is still at work as is_changing and
 * is_moving. */
#ifndef GRADPOOL_PACKER_GROWTH_SCALE_H
#define GRADPOOL_PACKER_GROWTH_SCALE_H

#include <stdbool.h>

#include "packer/packer.h"

#define SCALE_OVER_WINDOWS UINT32_C(3) /* above its limit for so many, and a job is relieved */
#define SCALE_CALM_WINDOWS \
    UINT32_C(60) /* within it for so many after that, and its lanes may drain */
#define SCALE_ALONE_WINDOWS \
    UINT32_C(60) /* so long a lane is kept for who is measured there, and the next waits */
#define SCALE_TRIAL_REST_WINDOWS \
    UINT32_C(960) /* so long who could not be judged in a trial is not tried again */
#define SCALE_RELIEFS_MAX UINT32_C(6)    /* each doubles both */
#define SCALE_SETTLE_WINDOWS UINT32_C(3) /* after tasks have moved, before others may for a drain */
#define SCALE_MARGIN_PPM 10000           /* a drain keeps so far within every limit */
#define SCALE_LOW_PPM 700000             /* 0.8 of what 64 equal jobs may take of a lane at 5 % */
#define SCALE_STEP_NS_MAX UINT64_C(10000000000) /* what one call counts towards hold times */
#define SCALE_EXPLAINS 3 /* G4: as many times what the rule counts, where no wait is measured */
#define SCALE_TRIES 4    /* jobs, or lanes, for which a call makes plans */

/* 0 in a field: its default. */
struct scale_options {
    const char *policy;       /* a rule of loss; "shared" */
    uint32_t lanes_min;       /* open, always; 1 */
    uint32_t lanes_max;       /* cores granted; all lanes that are shown */
    uint32_t lanes_spare;     /* open without a job, for the next that is not measured; none */
    uint32_t low_ppm;         /* SCALE_LOW_PPM */
    uint64_t drain_hold_ns;   /* 30 s */
    uint64_t park_hold_ns;    /* 10 s */
    uint64_t stop_hold_ns;    /* 300 s */
    uint64_t drain_bytes_max; /* moved for one lane; 4 GiB */
};

/* Why a job that is above its limit was not relieved when that was looked at last. */
enum scale_stay {
    SCALE_STAY_NOT,         /* it is within its limit, or its time is still to come, or it was */
    SCALE_STAY_UNEXPLAINED, /* what others do on its lanes explains too little of it */
    SCALE_STAY_NO_LANE,     /* nowhere would everybody be within his limit */
};

/* What is remembered of a job from window to window. */
struct scale_memory {
    uint32_t over, within; /* windows running: above its limit; not */
    uint32_t reliefs;      /* of late */
    enum scale_stay stay;
    uint32_t explained_ppm; /* of what it loses: measured, else by the rule, when it stays */
    uint32_t shares, alone; /* windows running that it wants_alone: beside others; without */
    uint32_t measures;      /* how often it was moved to be measured alone */
    uint32_t narrowed; /* windows since G12 has moved it last, while that goes on; 0: it does not */
    uint32_t narrow_to;    /* how many lanes it was to have then */
    uint32_t narrow_fails; /* of late: it did not come to have them */
    uint32_t narrow_wait;  /* windows until it is tried again */
};

struct scale_job {
    uint64_t id;
    uint32_t workers;
    uint32_t loss_ppm;           /* measured; 0 also when it is not known */
    uint32_t shared_ppm;         /* of it, what lanes explain: waits behind other jobs, ... */
    bool knows_shared;           /* ... where these were measured */
    struct packer_timing timing; /* period_ns 0: not measured */
    bool is_moving;              /* some of its tasks are on their way */
    bool is_ordered;             /* an operator's order holds its tasks where they are (G13) */
    bool wants_alone;            /* it trains, and was never measured without others (G11) */
    uint32_t lanes_enough;       /* that it needs, as far as it is known; 0: not sought (G12) */
    uint32_t lanes_next;         /* to be tried: fewer; 0: none */
    struct scale_memory *memory; /* the caller keeps it as long as the job */
};

struct scale_lane {
    /* Read as packer_place() does, but for jobs, load_bytes, job_bytes, job_lane_ns, residents:
     * these follow from the tasks. load_ppm: in the last window. */
    struct packer_lane lane;
    uint32_t aggregator;
    bool is_changing; /* it is being opened, started, drained or parked */
    bool is_kept;     /* its aggregator is not ours to stop */
    bool is_awaited;  /* tasks are on their way to it: it counts as having some */
};

struct scale_task {
    uint32_t job, lane; /* positions */
    uint64_t bytes;
    uint64_t lane_ns;                 /* a round */
    uint64_t state_bytes, wire_bytes; /* as packer_tensor has them */
};

/* Has no lane yet, and there is none that is open. */
struct scale_wish {
    uint64_t job;
    uint32_t lanes; /* more than are open now */
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
    const struct packer_node *nodes; /* as packer_request has them */
    size_t nodes_count;
};

enum scale_verb {
    SCALE_NOTHING,
    SCALE_OPEN,    /* `lanes`, of aggregators that run */
    SCALE_START,   /* `aggregator`, with `lanes` open */
    SCALE_NARROW,  /* `job` leaves some of its lanes by `moves`, or spreads to `lanes` again */
    SCALE_MEASURE, /* `job` leaves lanes that it shares by `moves`; `lanes` as for relief */
    SCALE_RELIEVE, /* `job` leaves `lane` by `moves`; `lanes` are parked and open first */
    SCALE_DRAIN,   /* `lane` is emptied by `moves`, and nothing new is placed there */
    SCALE_PARK,    /* `lanes`: nothing is on them */
    SCALE_STOP,    /* `aggregator`: no lane of it is open */
};

struct scale_move {
    uint32_t task;   /* position */
    uint32_t target; /* id of the lane */
};

struct scale_decision {
    enum scale_verb verb;
    uint32_t aggregator;
    uint32_t lane;   /* id */
    uint64_t job;    /* id of the one that the reason names; 0: none */
    uint32_t *lanes; /* ids, ascending */
    size_t lanes_count;
    struct scale_move *moves; /* tasks ascending */
    size_t moves_count;
    char reason[256]; /* one sentence, for SCALE_NOTHING too */
};

struct scale {
    bool has_begun;
    uint64_t last_ns;
    uint32_t settle;  /* windows */
    uint64_t low_ns;  /* for so long the load has been low */
    uint64_t idle_ns; /* for so long there have been lanes to park, at least idle_lanes */
    size_t idle_lanes;
    uint64_t rest_ns; /* for so long there have been aggregators to stop, at least resting */
    size_t resting;
};

/* -EINVAL: what is seen makes no sense, nothing is changed; -ENOMEM: the window is counted, nothing
 * is decided. The decision is untouched on an error. */
int scale_tick(struct scale *scale, const struct scale_options *options,
               const struct scale_seen *seen, uint64_t now_ns, struct scale_decision *ret_decision);
void scale_decision_fini(struct scale_decision *decision);

#endif
