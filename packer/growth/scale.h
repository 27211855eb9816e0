/* Decides when lanes open and park, when aggregators start and stop, and which tasks move for these
 * changes. Pure: no clock. The caller owns the state, which begins as all zeros. RULES.md: G1 to
 * G13.
 *
 * scale_tick() is called once in each window with the state of lanes, jobs and tasks, and returns
 * at most one decision. The caller does what the decision requires. Until the decision is carried
 * out, the caller marks its lanes and jobs with is_changing and is_moving. */
#ifndef GRADPOOL_PACKER_GROWTH_SCALE_H
#define GRADPOOL_PACKER_GROWTH_SCALE_H

#include <stdbool.h>

#include "packer/packer.h"

/* A job that is above its loss limit for this number of windows is relieved: its tasks leave its
 * worst lane (G4). */
#define SCALE_OVER_WINDOWS UINT32_C(3)
/* After this number of windows within its limit, a relieved job's lanes may be drained again
 * (G8). */
#define SCALE_WITHIN_WINDOWS UINT32_C(60)
/* Lanes are reserved for this number of windows for a job that is measured alone or in a trial
 * (G11, G12). */
#define SCALE_ALONE_WINDOWS UINT32_C(60)
/* A trial that ended without a verdict is not repeated for this number of windows (G12). */
#define SCALE_TRIAL_REST_WINDOWS UINT32_C(960)
/* Each relief doubles SCALE_OVER_WINDOWS and SCALE_WITHIN_WINDOWS for its job, at most this many
 * times. */
#define SCALE_RELIEFS_MAX UINT32_C(6)
/* Number of windows between a move of tasks and the next drain, trial or measurement (G7, G11,
 * G12). */
#define SCALE_SETTLE_WINDOWS UINT32_C(3)
/* parts per million that are subtracted from every loss limit in the plan of a drain */
#define SCALE_MARGIN_PPM 10000
/* default of low_ppm: 0.8 times the load that 64 equal jobs may cause on a lane if their loss limit
 * is 5 % */
#define SCALE_LOW_PPM 700000
#define SCALE_STEP_NS_MAX UINT64_C(10000000000) /* maximum time that one call adds to a hold time */
/* For a job whose waits for other jobs are not measured: other jobs count as the cause of a loss of
 * at most this multiple of the predicted loss (G4). */
#define SCALE_EXPLAINS 3
#define SCALE_TRIES 4 /* one call makes plans for at most this many jobs or lanes */

/* Options. A field with the value 0 gets its default, which is given in its comment. */
struct scale_options {
    const char *policy; /* name of a policy that predicts losses; default "shared" */
    uint32_t lanes_min; /* number of lanes that always stay open; default 1 */
    uint32_t lanes_max; /* maximum number of open lanes; default: no maximum */
    /* number of empty lanes that stay open for the next unmeasured job; default 0 */
    uint32_t lanes_spare;
    /* a drain may begin if the mean load of the remaining used lanes would be below this value;
     * default SCALE_LOW_PPM */
    uint32_t low_ppm;
    uint64_t drain_hold_ns; /* duration of low load after which a lane is drained; default 30 s */
    /* duration for which a lane must be surplus before it is parked; default 10 s */
    uint64_t park_hold_ns;
    /* duration without an open lane after which an aggregator stops; default 300 s */
    uint64_t stop_hold_ns;
    uint64_t drain_bytes_max; /* a drain or a trial moves at most this many bytes; default 4 GiB */
};

/* Result of the last attempt to move a job above its loss limit off its worst lane. */
enum scale_stay {
    /* no attempt was made, the job has moved, or the loss is within the limit again */
    SCALE_STAY_NOT,
    SCALE_STAY_UNEXPLAINED, /* other jobs on the lanes cause too small a part of the loss */
    SCALE_STAY_NO_LANE,     /* on every other lane some job would exceed its loss limit */
};

/* State of a job that lasts from window to window. */
struct scale_memory {
    uint32_t over;   /* number of consecutive windows above the loss limit */
    uint32_t within; /* number of consecutive windows within the loss limit */
    /* number of recent moves off a worst lane (reliefs), up to SCALE_RELIEFS_MAX (G8) */
    uint32_t reliefs;
    enum scale_stay stay;
    /* part of the loss that other jobs cause, measured or predicted, in millionths; valid unless
     * `stay` is SCALE_STAY_NOT */
    uint32_t explained_ppm;
    /* number of consecutive windows on lanes with other jobs while wants_alone is set */
    uint32_t shares;
    /* number of consecutive windows on lanes without another job while wants_alone is set */
    uint32_t alone;
    uint32_t measures; /* number of moves to separate lanes for a measurement (G11) */
    /* number of windows since the last move of a trial; 0: no trial is in progress (G12) */
    uint32_t narrowed;
    uint32_t narrow_to; /* number of lanes to which the last trial moved the job */
    /* number of consecutive trials that did not reach their number of lanes */
    uint32_t narrow_fails;
    uint32_t narrow_wait; /* number of windows until the next trial may begin */
};

struct scale_job {
    uint64_t id;
    uint32_t workers;
    uint32_t loss_ppm;       /* measured loss in millionths; 0: no loss, or unknown */
    uint32_t shared_ppm;     /* part of the loss that waits for other jobs cause, in millionths */
    bool is_shared_measured; /* whether shared_ppm was measured */
    struct packer_timing timing; /* period_ns is 0 if the job is not measured */
    bool is_moving;              /* a migration of the job's tasks is in progress */
    bool is_ordered;             /* an operator's order pins the tasks to their lanes (G13) */
    /* whether the job trains and its period without other jobs is unknown (G11) */
    bool wants_alone;
    uint32_t lanes_enough; /* smallest number of lanes known to be enough; 0: no trials (G12) */
    uint32_t lanes_next;   /* number of lanes that the next trial should try; 0: no trial */
    struct scale_memory *memory; /* state of the job from window to window, owned by the caller */
};

struct scale_lane {
    /* The lane, as for packer_place(). The fields jobs, load_bytes, job_bytes, job_lane_ns and
     * residents are ignored, because scale_tick() computes them from the tasks. load_ppm is the
     * load in the last window. */
    struct packer_lane lane;
    uint32_t aggregator;
    bool is_changing; /* the lane is being opened, started, drained or parked */
    bool is_kept;     /* whether the lane's aggregator must not be stopped */
    /* true: tasks move to the lane, or shards of tables stay on the lane; the lane then counts as
     * used */
    bool is_awaited;
};

struct scale_task {
    uint32_t job, lane; /* positions of the job and the lane */
    uint64_t bytes;
    uint64_t lane_ns; /* lane time of a round */
    /* memory and network bytes of the task, as in struct packer_tensor */
    uint64_t state_bytes, wire_bytes;
};

/* A job that waits for lanes, because the job does not fit on the open lanes. */
struct scale_wish {
    uint64_t job;
    uint32_t lanes; /* number of lanes that the job needs in addition to the lanes that are open */
};

struct scale_seen {
    const struct scale_lane *lanes; /* sorted by id */
    size_t lanes_count;
    const struct scale_job *jobs;
    size_t jobs_count;
    const struct scale_task *tasks;
    size_t tasks_count;
    const struct scale_wish *wishes;
    size_t wishes_count;
    /* memory and bandwidth of NUMA nodes, as in struct packer_request */
    const struct packer_node *nodes;
    size_t nodes_count;
};

enum scale_verb {
    SCALE_NOTHING,
    SCALE_OPEN,  /* open the parked `lanes` */
    SCALE_START, /* start `aggregator` with `lanes` open */
    /* open the parked `lanes`, then carry out `moves`: `job` gets fewer or more lanes */
    SCALE_NARROW,
    /* open the parked `lanes`, then carry out `moves`: `job` leaves its shared lanes */
    SCALE_MEASURE,
    SCALE_RELIEVE, /* open the parked `lanes`, then carry out `moves`: `job` leaves `lane` */
    SCALE_DRAIN,   /* carry out `moves`, which empty `lane`, and place no new tasks on `lane` */
    SCALE_PARK,    /* park `lanes`, which have no tasks */
    SCALE_STOP,    /* stop `aggregator`, which has no open lane */
};

struct scale_move {
    uint32_t task;   /* position of the task in the input */
    uint32_t target; /* id of the lane to which the task moves */
};

struct scale_decision {
    enum scale_verb verb;
    uint32_t aggregator;
    uint32_t lane;   /* id of the lane that the tasks leave */
    uint64_t job;    /* id of the job that the decision is for; 0: none */
    uint32_t *lanes; /* ids of lanes, sorted */
    size_t lanes_count;
    struct scale_move *moves; /* sorted by task */
    size_t moves_count;
    char reason[256]; /* reason in one sentence, also for SCALE_NOTHING */
};

struct scale {
    bool has_begun;
    uint64_t last_ns;
    uint32_t settle;       /* number of windows in which no drain may move tasks yet (G7) */
    uint64_t low_ns;       /* time for which the load has been low */
    uint64_t idle_ns;      /* time since the number of surplus lanes was last 0 */
    size_t idle_lanes;     /* least number of surplus lanes during idle_ns */
    uint64_t stoppable_ns; /* time since the number of aggregators that may stop was last 0 */
    size_t stoppable;      /* least number of aggregators that might stop, during stoppable_ns */
};

/* Evaluates the measurements of one window, and returns at most one decision. The caller calls
 * scale_decision_fini() on the decision. After an error `ret_decision` is unchanged. -EINVAL:
 * `seen` is inconsistent, and the state is unchanged; -ENOMEM: the window counts, but there is no
 * decision. */
int scale_tick(struct scale *scale, const struct scale_options *options,
               const struct scale_seen *seen, uint64_t now_ns, struct scale_decision *ret_decision);
void scale_decision_fini(struct scale_decision *decision);

#endif
