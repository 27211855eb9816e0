/* packer: chooses a lane for each piece of each tensor. PURE: no I/O, no clock, no randomness; the
 * same input gives the same plan on every machine.
 *
 * A plan places all tensors that a job declares in one call, in addition to the pieces that the
 * lanes have. The policy cuts large tensors into pieces and spreads them. The caller joins small
 * pieces of one job on one lane into tasks.
 *
 * In every field zero means "unknown" or "not limited", unless the comment differs. */
#ifndef GRADPOOL_PACKER_PACKER_H
#define GRADPOOL_PACKER_PACKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Times of a job that were measured without other jobs. The busiest lane is the lane on which the
 * job has the most lane time. */
struct packer_timing {
    uint64_t period_ns; /* time from round to round; up to PACKER_PERIOD_NS_MAX */
    /* lane time of a round on the busiest lane, from the same measurement as period_ns */
    uint64_t spread_ns;
    uint32_t loss_limit_ppm; /* result of packer_loss_limit_ppm(); 0: PACKER_LOSS_LIMIT_PPM */
    uint32_t spent_ppm;      /* part of the loss limit that fewer lanes have cost (R10) */
    /* The next three fields are durations at the end of a round on the busiest lane, for
     * packer_predict() only. */
    uint64_t span_ns; /* time from the first lane work of a round to its last; 0: unknown */
    /* lane time of the last work of a round: the work since the lane last had no work of the job */
    uint64_t burst_ns;
    /* time from the end of work on this lane to the end of work on the job's last lane */
    uint64_t slack_ns;
};

/* A measured job on a lane. */
struct packer_resident {
    uint64_t job;                /* number of the job at the caller, for reasons and reports */
    uint64_t lane_ns;            /* lane time of a round of the job on this lane */
    struct packer_timing timing; /* period_ns is known */
};

enum packer_lane_state {
    PACKER_LANE_OPEN,
    PACKER_LANE_PARKED,    /* the lane is parked; its aggregator runs */
    PACKER_LANE_UNSTARTED, /* the lane's aggregator is not started */
};

/* Free resources of a NUMA node, which all its lanes share. */
struct packer_node {
    uint64_t memory_bytes; /* free memory; 0: none is free; UINT64_MAX: not limited */
    /* free bandwidth of the network interface; 0: none is free; UINT64_MAX: not limited */
    uint64_t nic_bytes_per_s;
};

struct packer_lane {
    uint32_t id;
    uint32_t jobs;         /* number of jobs with pieces on the lane, except the placed job */
    uint64_t load_bytes;   /* bytes of all pieces on the lane */
    uint64_t job_bytes;    /* part of load_bytes that belongs to the placed job */
    uint64_t load_ppm;     /* busy part of the lane's time, measured, in parts per million */
    uint64_t memory_bytes; /* free memory; UINT64_MAX: not limited */
    int32_t numa;
    /* position of the lane's node in the request's nodes; read only if the request has nodes */
    uint32_t node;
    enum packer_lane_state state;
    /* free bandwidth of the lane's network interface; 0 or UINT64_MAX: not limited */
    uint64_t nic_bytes_per_s;
    /* lane time of a round of the placed job on this lane, from earlier calls */
    uint64_t job_lane_ns;
    /* the measured jobs on the lane, except the placed job */
    const struct packer_resident *residents;
    size_t residents_count;
};

struct packer_tensor {
    uint32_t id; /* number of the tensor at the caller; the pieces of the plan have this number */
    uint32_t name_hash; /* hash of the name, the same on every host; read by policy `hash` */
    const char *name;   /* name of the tensor in reasons; NULL: reasons contain the id */
    uint64_t elements;
    uint32_t element_bytes;
    uint64_t lane_ns;     /* lane time of a round of the whole tensor; 0: no lane time */
    uint64_t state_bytes; /* memory of the tensor on its lanes; 0: elements x element_bytes */
    /* bytes that a round sends over the network, in both directions, for all workers; 0: none */
    uint64_t wire_bytes;
    bool is_whole; /* the tensor is not cut even if it is large, as for a shard of a table */
};

struct packer_request {
    const char *policy; /* name of a policy, one of packer_policies(); NULL: the default */
    /* number of the job's workers; `dedicated` uses one lane for each worker */
    uint32_t workers;
    uint64_t piece_bytes_max; /* maximum size of a piece; 0: PACKER_PIECE_BYTES_MAX */
    /* number of the job; the policy round-robin begins at a lane that depends on this number */
    uint64_t job_key;
    const struct packer_lane *lanes; /* sorted by id */
    size_t lanes_count;
    const struct packer_tensor *tensors;
    size_t tensors_count;
    struct packer_timing timing; /* timing of the placed job; period_ns 0: not measured */
    /* maximum number of lanes of the job; 0: max(8, workers). Only for policies with a loss
     * limit */
    uint32_t lanes_max;
    const struct packer_node *nodes;
    size_t nodes_count;
};

#define PACKER_LOSS_LIMIT_PPM UINT32_C(50000)
/* 2^53 ns (104 days): a double represents all integers up to this value exactly */
#define PACKER_PERIOD_NS_MAX (UINT64_C(1) << 53)
#define PACKER_PIECE_BYTES_MAX (UINT64_C(4) << 20)
#define PACKER_PIECE_BYTES_FINE (UINT64_C(1) << 20) /* smallest result of packer_piece_bytes() */

struct packer_piece {
    uint32_t tensor; /* value of packer_tensor.id */
    uint32_t lane;   /* value of packer_lane.id */
    uint64_t first;  /* first element */
    /* number of elements; 0 only for a tensor without elements (a barrier), which gets one piece */
    uint64_t elements;
};

/* Returns the maximum size of a piece for a job of `bytes`, small enough to fill `lanes` evenly
 * (P4). */
uint64_t packer_piece_bytes(uint64_t piece_bytes_max, uint64_t bytes, size_t lanes);

/* Load of a lane after the plan, and predicted losses, which include the margin of the policy. A
 * loss is 0 for an unmeasured job, and under a policy without a loss limit. */
struct packer_share {
    uint32_t lane;
    /* state of the lane before the plan; the caller opens a lane that is not open */
    enum packer_lane_state state;
    /* lane time of a round of the placed job on this lane, including earlier calls */
    uint64_t lane_ns;
    /* additional lane time that the placed job may use on this lane within every loss limit */
    uint64_t spare_ns;
    uint32_t loss_ppm;  /* predicted loss of the placed job */
    uint32_t worst_ppm; /* largest loss among the other jobs of the lane */
    uint64_t worst_job; /* job with the loss worst_ppm; 0: no other job */
};

struct packer_plan {
    struct packer_piece *pieces; /* sorted by the request's order of tensors, then by `first` */
    size_t pieces_count;
    struct packer_share
        *shares; /* array with one entry for each lane with pieces of this plan, sorted by id */
    size_t shares_count;
};

/* Returns the names of the policies, then NULL. The default is first. */
const char *const *packer_policies(void);
/* Returns the names of the policies that `serve --help` lists, then NULL. All other policies are
 * baselines. */
const char *const *packer_offered_policies(void);

/* Places the request. -EINVAL: unknown policy (the reason lists all), or an inconsistent request
 * (lanes not sorted, sizes beyond 2^64, elements larger than a piece); -ENOSPC: refused (no lane,
 * or no memory); -ENOMEM. After an error `reason` (may be NULL with 0 bytes) has one sentence, and
 * the plan is unchanged. */
int packer_place(const struct packer_request *request, struct packer_plan *ret_plan, char *reason,
                 size_t reason_bytes);
void packer_plan_fini(struct packer_plan *plan);

/* Computes the predicted loss of each job on one lane, 0 to 1, without a margin. -EINVAL: the
 * policy has no loss limit, or a period is 0 or too long. The loss of a job is the largest of its
 * losses on all its lanes. */
int packer_losses(const char *policy, const struct packer_resident *jobs, size_t count,
                  double *ret_losses);

/* Computes the likely loss of each job on one lane, 0 to 1, for reports; placement uses
 * packer_losses(). If span_ns and spread_ns of a job are known, lane work costs nothing if it ends
 * before the computation of the job ends (L8). Other jobs get the result of packer_losses().
 * Errors: as for packer_losses(). */
int packer_predict(const char *policy, const struct packer_resident *jobs, size_t count,
                   double *ret_losses);

/* Returns the smallest of the limits that are not 0, or PACKER_LOSS_LIMIT_PPM if all are 0. A job
 * whose limit is at most the margin (10,000 ppm) shares no lane. */
uint32_t packer_loss_limit_ppm(uint32_t service_ppm, uint32_t tenant_ppm, uint32_t job_ppm);

#endif
