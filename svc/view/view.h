/* Plain snapshots of what people are shown: status, jobs, metrics, pages, reports. Filled by the
 * coordinator's side, rendered by cli and ops; no behaviour. Strings belong to the snapshot's
 * owner. */
#ifndef GRADPOOL_VIEW_VIEW_H
#define GRADPOOL_VIEW_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct view_use {
    uint64_t heap_bytes;       /* service memory held for it */
    uint64_t registered_bytes; /* worker memory lent to the service */
    uint64_t busy_ns;          /* lane CPU time */
    uint64_t pushed_bytes;     /* gradient bytes taken in */
    uint64_t rounds;
    uint32_t connections;
    uint64_t queue_ns;       /* that its rounds waited for their first chunk, together */
    uint64_t handled_ns;     /* in which some round of it could be worked on or was */
    uint64_t stalled_ns;     /* that workers waited for this lane, together */
    uint32_t states, copied; /* pieces that keep parameters; those of them with a whole copy */
    uint32_t empty;          /* those without one that have nothing to lose: never set, or failed */
};

/* Between this snapshot and the one before; NAN: not known yet. */
struct view_rate {
    double cores; /* CPU seconds a second */
    double rounds_per_s, bytes_per_s;
    double handled, queued; /* seconds a second */
};

/* Of the newest round of a job's measured tensors. */
struct view_measured {
    uint64_t round; /* 0: nothing is measured */
    uint32_t inputs, losses;
    double input_squares, result_squares, loss_sum;
};

/* A job on a lane. */
struct view_part {
    uint32_t job_id;
    struct view_use use;
    struct view_rate rate;
    double share; /* of what the lane's jobs used since the snapshot before */
};

struct view_lane {
    uint32_t lane, core, pu, tasks, jobs;
    int32_t numa;
    uint64_t memory_bytes_max;
    bool is_measured; /* false: what follows is not known yet */
    uint64_t cpu_ns, arena_bytes;
    struct view_use use;
    const char *state; /* "open", "closing", "parked", "withheld" */
    const char *shm, *ofi;
    struct view_part *parts; /* job numbers ascend */
    size_t parts_count;
    struct view_rate rate;
};

struct view_aggregator {
    uint32_t aggregator, pid;
    const char *node, *state;
    uint64_t cpu_ns, silent_ns; /* silent_ns: without an answer to a ping */
    uint64_t measured_ns;       /* when its figures came, on the clock of uptime_ns; 0: never */
    struct view_lane *lanes;
    size_t lanes_count;
};

/* Why a lane opened or was parked, or tasks moved. */
struct view_event {
    double at_s; /* on the clock of uptime_ns, or since a run began */
    const char *kind, *text;
};

/* Of the machine, the build, the settings. */
struct view_fact {
    const char *name, *value;
};

/* Cost of a tenant for the coordinator; "": those who come without a key. */
struct view_payer {
    const char *tenant;
    uint64_t cpu_ns;
};

struct view_status {
    const char *endpoint, *state_dir, *policy;
    uint32_t pid, jobs, tasks;
    uint64_t uptime_ns, cpu_ns, incarnation;
    struct view_aggregator *aggregators;
    size_t aggregators_count;
    struct view_event *events; /* the newest last; as many as are remembered */
    size_t events_count;
    struct view_fact *settings;
    size_t settings_count;
    struct view_payer *payers; /* for operators */
    size_t payers_count;
    bool own_only; /* jobs of other tenants are left out, and sums are over the rest */
};

struct view_worker {
    uint32_t rank, pid;
    const char *node, *state;
};

struct view_limit {
    const char *name; /* "job-tensors" */
    uint64_t used, most;
    bool is_own; /* the tenant's own, not the service's */
};

struct view_job {
    const char *tenant; /* "": came without a key */
    const char *job, *state, *failure, *waits_for;
    uint32_t job_id, workers, tensors, tasks, epoch;
    uint64_t tensor_bytes;
    uint32_t *lanes;
    size_t lanes_count;
    struct view_use use;
    struct view_measured measured;
    /* 0: not measured, or not known */
    uint64_t period_ns, alone_period_ns, lane_ns; /* of a round: now, without others; lane time */
    uint64_t feedback_ns;                         /* from its arrival to its first results */
    uint32_t loss_ppm, shared_loss_ppm; /* against running alone; of it, what lanes explain */
    bool is_predicted;                  /* else nothing is predicted, not even 0 */
    uint32_t predicted_loss_ppm, loss_limit_ppm; /* limit 0: none is named */
    const char *durability;                      /* "none", "replica", "worker"; NULL: not known */
    struct view_rate rate;
    double cores_allocated; /* its shares of its lanes */
    struct view_worker *ranks;
    size_t ranks_count;
    uint64_t control_ns;       /* of the coordinator's thread, for its workers */
    struct view_limit *limits; /* its own and its tenant's */
    size_t limits_count;
};

struct view_jobs {
    struct view_job *jobs;
    size_t jobs_count;
};

/* What the service holds and what it saves. */
struct view_cores {
    double allocated; /* one a lane that is not parked; of a tenant its jobs' parts of lanes */
    double used;      /* by lanes, CPU seconds a second, likewise; NAN: not known yet */
    double dedicated; /* what the jobs would hold with servers of their own (O5) */
};

struct view_moment {
    double at_s; /* on the clock of uptime_ns, or since a run began; the middle of what it means */
    struct view_cores cores;
};

struct view_tenant {
    const char *tenant, *role, *state;
    uint64_t added_s;        /* since 1970 */
    uint32_t loss_limit_ppm; /* 0: none is named */
    uint32_t jobs, connections;
    uint64_t cpu_ns;           /* of the coordinator's thread, for its requests */
    struct view_limit *limits; /* without what only lanes count */
    size_t limits_count;
};

struct view_tenants {
    struct view_tenant *tenants;
    size_t tenants_count;
};

#endif
