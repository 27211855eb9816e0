/* Plain data for users: status, jobs, metrics, pages, reports. The coordinator fills in the
 * structs; cli and ops print them. The header has no code. The owner of the data also owns the
 * strings. Fields with _ppm are in millionths. */
#ifndef GRADPOOL_VIEW_VIEW_H
#define GRADPOOL_VIEW_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct view_use {
    uint64_t heap_bytes;       /* memory of the service that the job uses */
    uint64_t registered_bytes; /* memory of workers that the service may access */
    uint64_t busy_ns;          /* CPU time of lanes */
    uint64_t pushed_bytes;     /* received bytes of gradients */
    uint64_t rounds;
    uint32_t connections;
    /* time for which rounds waited for their first chunk, summed over all rounds */
    uint64_t queue_ns;
    uint64_t handled_ns; /* time during which a round was ready or in progress */
    uint64_t stalled_ns; /* time for which workers waited for this lane, summed over all workers */
    uint32_t states;     /* number of pieces with parameters */
    uint32_t copied;     /* number of pieces with parameters that have a complete replica */
    /* number of pieces that need no replica: their parameters were never set, or the piece has
     * failed */
    uint32_t empty;
};

/* Rates between the previous snapshot and this snapshot; NAN: not known yet. */
struct view_rate {
    double cores; /* CPU seconds per second */
    double rounds_per_s, bytes_per_s;
    double handled, queued; /* handled_ns and queue_ns, in seconds per second */
};

/* Sums over a job's measured tensors, for their newest round. */
struct view_measured {
    uint64_t round; /* newest measured round; 0: no tensor is measured */
    uint32_t inputs, losses;
    double input_squares, result_squares, loss_sum;
};

/* A job's part of a lane. */
struct view_part {
    uint32_t job_id;
    struct view_use use;
    struct view_rate rate;
    /* job's part of the lane's busy time since the previous snapshot */
    double share;
};

struct view_lane {
    uint32_t lane, core, pu, tasks, jobs;
    int32_t numa;
    uint64_t memory_bytes_max;
    bool is_measured; /* whether the following fields are known */
    uint64_t cpu_ns, arena_bytes;
    struct view_use use;
    const char *state; /* "open", "closing", "parked" or "withheld" */
    const char *shm, *ofi;
    struct view_part *parts; /* sorted by the number of the job */
    size_t parts_count;
    struct view_rate rate;
};

struct view_aggregator {
    uint32_t aggregator, pid;
    const char *node, *state;
    uint64_t cpu_ns, silent_ns; /* silent_ns: time without an answer to a ping */
    uint64_t measured_ns; /* arrival of the newest counters, on the clock of uptime_ns; 0: never */
    struct view_lane *lanes;
    size_t lanes_count;
};

/* An event with its reason: a lane has opened or parked, or tasks have moved. */
struct view_event {
    double at_s; /* seconds since the start of the coordinator, or of a run */
    const char *kind, *text;
};

/* The name and the value of a fact about the machine, the build or the settings. */
struct view_fact {
    const char *name, *value;
};

/* CPU time that the coordinator has spent on a tenant; tenant "": jobs without a key. */
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
    struct view_event *events; /* all events that the coordinator stores, the newest last */
    size_t events_count;
    struct view_fact *settings;
    size_t settings_count;
    struct view_payer *payers; /* CPU time of each tenant; only operators get this list */
    size_t payers_count;
    bool own_only; /* whether lists and sums are limited to jobs of the requesting tenant */
};

struct view_worker {
    uint32_t rank, pid;
    const char *node, *state;
};

/* Number of reasons for the close of a round: all ranks have arrived, gain, moment, absence of a
 * rank, replay. */
#define VIEW_REASONS 5

/* Numbers of rounds with a gradient of the rank, and of rounds that dropped the rank's gradient. */
struct view_counts_rank {
    uint32_t rank;
    uint64_t counted, dropped;
    uint64_t scale_ns; /* mean time of the rank's gradients; 0: unknown */
};

/* Counts over the rounds of a job with backup workers; at least one round has closed. */
struct view_counts {
    uint64_t rounds, gradients;
    uint64_t reasons[VIEW_REASONS];
    size_t ranks_count;
    struct view_counts_rank ranks[]; /* sorted by rank; ranks that were in no round are left out */
};

/* A table of keyed rows. Counts are sums over the lanes of the table. */
struct view_table {
    /* failure: reason of the failure; "": the table has not failed */
    const char *table, *rule, *failure;
    char consistency[16]; /* "bsp", "ssp:2" or "asp" */
    /* copy: "whole", "copying", "promoting" or "no copy"; NULL: the table wants no copy.
     * copy_fault: reason for which there is no whole copy; "": none */
    const char *copy, *copy_fault;
    uint32_t dim, shards;
    /* whether a lane has sent counts; otherwise the following fields are invalid */
    bool is_counted;
    /* bytes: memory of rows and index; births: number of rows ever created */
    uint64_t rows, bytes, births;
    uint64_t pulled_keys, pushed_keys;
    uint64_t minimum_clock, largest_clock; /* smallest and largest clock of the ranks */
    /* lowest rank whose clock is the minimum; invalid if both clocks are equal */
    uint32_t behind_rank;
};

struct view_tables {
    /* left_out: number of further tables, for which the message had no room */
    size_t count, left_out;
    struct view_table each[];
};

struct view_stage {
    /* name "": the job is between stages, and all ranks work; choice: how the number of workers was
     * chosen */
    const char *name, *choice;
    uint64_t number;
    uint32_t workers;
    /* time since the start of this stage; time from the end of the former stage to this start */
    uint64_t age_ns, hand_over_ns;
};

struct view_limit {
    const char *name; /* name of the limit, such as "job-tensors" */
    uint64_t used, most;
    bool is_own; /* whether the limit was set for this tenant; otherwise for all tenants */
};

struct view_job {
    const char *tenant; /* tenant of the job; "": a job without a key */
    const char *job, *state, *failure, *waits_for;
    uint32_t job_id, workers, tensors, tasks, epoch;
    uint64_t tensor_bytes;
    uint32_t *lanes;
    size_t lanes_count;
    struct view_use use;
    struct view_measured measured;
    /* period of a round now; period without other jobs; lane time of a round. 0: unknown */
    uint64_t period_ns, alone_period_ns, lane_ns;
    uint64_t feedback_ns; /* time from the first join to the end of the first round */
    /* loss compared with a run alone, and the part of this loss caused by waits for lanes; both in
     * millionths */
    uint32_t loss_ppm, shared_loss_ppm;
    bool is_predicted; /* whether a prediction exists; otherwise the next field is invalid */
    /* predicted loss, and limit of the loss (0: no limit) */
    uint32_t predicted_loss_ppm, loss_limit_ppm;
    /* place of the copies: "none", "replica" or "worker"; NULL: unknown */
    const char *durability;
    struct view_rate rate;
    double cores_allocated;    /* sum of the job's shares of its lanes, in cores */
    struct view_worker *ranks; /* array that ends with an entry without a node */
    uint64_t control_ns;       /* CPU time that the coordinator has spent on the job's workers */
    /* limits of the job and of its tenant; the array ends with an entry without a name */
    struct view_limit *limits;
    /* counts of rounds; NULL: the job has no backup workers, or has closed no round */
    struct view_counts *counts;
    struct view_tables *tables; /* tables of the job; NULL: the job has no table */
    struct view_stage *stage;   /* present stage of the job; NULL: the job has had no stage */
};

/* A site: slots for workers that pools start. */
struct view_site {
    const char *site;
    uint32_t slots;
    uint32_t held, leaving;  /* slots of workers that stay; slots of workers that are leaving */
    uint32_t pools, waiting; /* connected pools; jobs in the queue */
    uint64_t grown, shrunk;  /* resizes of jobs since the start of the coordinator */
};

/* A job whose workers are started by a pool. The job may have no worker yet. */
struct view_pool_job {
    const char *tenant, *job, *site, *state;
    const char *decision; /* last decision of the scheduler, with both speeds */
    uint32_t workers, leaving, workers_min, workers_max;
};

struct view_pools {
    struct view_site *sites;
    size_t sites_count;
    struct view_pool_job *jobs; /* jobs of the pools; jobs in training are first */
    size_t jobs_count;
};

struct view_jobs {
    struct view_job *jobs;
    size_t jobs_count;
    struct view_pools *pools; /* pools and sites; NULL: the service has no site */
};

/* Cores that the service has allocated, uses, and would need without sharing. */
struct view_cores {
    /* number of lanes that are not parked; for a tenant, the sum of its jobs' parts of lanes */
    double allocated;
    /* CPU seconds per second that the allocated lanes, or parts of lanes, use; NAN: not known
     * yet */
    double used;
    double dedicated; /* cores that the jobs would use with dedicated servers (O5) */
};

struct view_moment {
    /* middle of the averaged period, in seconds since the start of the coordinator, or of a run */
    double at_s;
    struct view_cores cores;
};

struct view_tenant {
    const char *tenant, *role, *state;
    uint64_t added_s;        /* seconds since 1970 */
    uint32_t loss_limit_ppm; /* loss limit in millionths; 0: no limit */
    uint32_t jobs, connections;
    /* CPU time that the coordinator has spent on the tenant's requests */
    uint64_t cpu_ns;
    /* limits of the tenant, except limits whose use is counted by lanes only */
    struct view_limit *limits;
    size_t limits_count;
};

struct view_tenants {
    struct view_tenant *tenants;
    size_t tenants_count;
};

#endif
