/* packer: decides which lane holds which piece of which tensor. PURE: no I/O, no clock, no
 * randomness; the same input gives the same plan on every machine.
 *
 * A plan places a batch of tensors (all tensors that a job declares in one call) in addition to the
 * pieces that the lanes have already. The policy cuts big tensors and spreads the pieces; the
 * caller gathers small pieces of one job on one lane into tasks.
 *
 * Zero means "not known" or "not limited" in every field unless its comment differs. */
#ifndef GRADPOOL_PACKER_PACKER_H
#define GRADPOOL_PACKER_PACKER_H

#include <stddef.h>
#include <stdint.h>

/* How a job runs when it is alone. The busiest lane is the lane with most lane time of the job. */
struct packer_timing {
    uint64_t period_ns;      /* time from round to round; up to PACKER_PERIOD_NS_MAX */
    uint64_t spread_ns;      /* lane time a round on the busiest lane, measured with period_ns */
    uint32_t loss_limit_ppm; /* packer_loss_limit_ppm(); 0: PACKER_LOSS_LIMIT_PPM */
    uint32_t spent_ppm;      /* part of the loss limit that running on fewer lanes uses up (R10) */
    /* End of a round on the busiest lane; for packer_predict() only. */
    uint64_t span_ns;  /* from a round's first lane work to its last; 0: not known */
    uint64_t burst_ns; /* lane time of the round's last stretch of work without a pause */
    uint64_t slack_ns; /* time from the end of its work to the end of the job's last lane */
};

/* A measured job on a lane. */
struct packer_resident {
    uint64_t job;                /* the caller's number of the job, for reasons and reports */
    uint64_t lane_ns;            /* lane time a round of the job on this lane */
    struct packer_timing timing; /* period_ns must be known */
};

enum packer_lane_state {
    PACKER_LANE_OPEN,
    PACKER_LANE_PARKED,    /* its aggregator runs */
    PACKER_LANE_UNSTARTED, /* its aggregator would have to start */
};

/* Resources that the lanes of one NUMA node share. */
struct packer_node {
    uint64_t memory_bytes;    /* free memory; 0: none is free; UINT64_MAX: not limited */
    uint64_t nic_bytes_per_s; /* free bandwidth; 0: none is free; UINT64_MAX: not limited */
};

struct packer_lane {
    uint32_t id;
    uint32_t jobs;         /* jobs with pieces on the lane, without the job to be placed */
    uint64_t load_bytes;   /* bytes of all pieces on the lane */
    uint64_t job_bytes;    /* part of load_bytes: pieces of the job to be placed */
    uint64_t load_ppm;     /* measured share of the lane's time in use, parts per million */
    uint64_t memory_bytes; /* free memory; UINT64_MAX: not limited */
    int32_t numa;
    uint32_t node; /* position in the request's nodes; read only if the request has nodes */
    enum packer_lane_state state;
    uint64_t nic_bytes_per_s; /* free bandwidth; 0 or UINT64_MAX: not limited */
    uint64_t job_lane_ns;     /* lane time a round of the job to be placed, from earlier calls */
    const struct packer_resident *residents; /* the measured jobs among `jobs` */
    size_t residents_count;
};

struct packer_tensor {
    uint32_t id;        /* the caller's number; the plan's pieces repeat it */
    uint32_t name_hash; /* packer_hash() of the name; read by the policy `hash` */
    const char *name;   /* for reasons; NULL: reasons name the id */
    uint64_t elements;
    uint32_t element_bytes;
    uint64_t lane_ns;     /* lane time a round of the whole tensor; 0: no lane time */
    uint64_t state_bytes; /* memory of the tensor on its lanes; 0: elements x element_bytes */
    uint64_t wire_bytes;  /* bytes on the wire a round, both ways, all workers; 0: none */
};

struct packer_request {
    const char *policy;       /* a name from packer_policies(); NULL: the default */
    uint32_t workers;         /* workers of the job: `dedicated` takes as many lanes */
    uint64_t piece_bytes_max; /* largest piece; 0: PACKER_PIECE_BYTES_MAX */
    uint64_t job_key; /* number of the job: round-robin begins at another lane for each job */
    const struct packer_lane *lanes; /* ascending ids */
    size_t lanes_count;
    const struct packer_tensor *tensors;
    size_t tensors_count;
    struct packer_timing timing; /* timing of the job to be placed; period_ns 0: not measured */
    uint32_t lanes_max; /* most lanes of the job; 0: max(8, workers). For policies with a limit */
    const struct packer_node *nodes;
    size_t nodes_count;
};

#define PACKER_LOSS_LIMIT_PPM UINT32_C(50000)
#define PACKER_PERIOD_NS_MAX (UINT64_C(1) << 53) /* exact as a double; 104 days */
#define PACKER_PIECE_BYTES_MAX (UINT64_C(4) << 20)
#define PACKER_PIECE_BYTES_FINE (UINT64_C(1) << 20) /* packer_piece_bytes() returns no less */

struct packer_piece {
    uint32_t tensor;   /* packer_tensor.id */
    uint32_t lane;     /* packer_lane.id */
    uint64_t first;    /* first element */
    uint64_t elements; /* 0 only for a tensor without elements, which gets one piece (barrier) */
};

/* Returns the largest size of a piece with which a job of `bytes` fills `lanes` evenly (P4). */
uint64_t packer_piece_bytes(uint64_t piece_bytes_max, uint64_t bytes, size_t lanes);

/* A lane after the plan. Losses are predictions with the margin of the policy; a loss is 0 for an
 * unmeasured job and under a policy without a loss limit. */
struct packer_share {
    uint32_t lane;
    enum packer_lane_state state; /* state before; the plan needs a lane opened that is not open */
    uint64_t lane_ns;             /* lane time a round of the placed job, earlier calls included */
    uint64_t spare_ns;  /* more lane time that the placed job could take within every limit */
    uint32_t loss_ppm;  /* loss of the placed job */
    uint32_t worst_ppm; /* largest loss among the other jobs of the lane */
    uint64_t worst_job; /* job with the loss worst_ppm; 0: no other job */
};

struct packer_plan {
    struct packer_piece *pieces; /* sorted by the request's order of tensors, then by `first` */
    size_t pieces_count;
    struct packer_share *shares; /* one for each lane with pieces of this plan, ascending ids */
    size_t shares_count;
};

/* Names of the policies, the default first, then NULL. */
const char *const *packer_policies(void);
/* The policies that `serve --help` offers, then NULL; all others are baselines. */
const char *const *packer_offered_policies(void);

/* -EINVAL: unknown policy (the reason lists them) or a request that makes no sense (lanes not in
 * order, sizes beyond 2^64, elements larger than a piece), -ENOSPC: refused (no lane, memory),
 * -ENOMEM. On an error `reason` (may be NULL with 0 bytes) gets one sentence, and the plan is
 * unchanged. */
int packer_place(const struct packer_request *request, struct packer_plan *ret_plan, char *reason,
                 size_t reason_bytes);
void packer_plan_fini(struct packer_plan *plan);

/* Predicted loss of each job on one lane, 0 to 1, without any margin. `policy` is one with a loss
 * limit; -EINVAL otherwise, or when a period is 0 or too long. A job's loss is the largest over its
 * lanes. */
int packer_losses(const char *policy, const struct packer_resident *jobs, size_t count,
                  double *ret_losses);

/* Likely loss of each job on one lane, 0 to 1, for reports; placement uses packer_losses(). For a
 * job with known span_ns and spread_ns, lane work that ends while the job still computes costs
 * nothing (L8); other jobs get the loss of packer_losses(). Errors as of packer_losses(). */
int packer_predict(const char *policy, const struct packer_resident *jobs, size_t count,
                   double *ret_losses);

/* Returns the smallest limit that is not 0, PACKER_LOSS_LIMIT_PPM if all are 0. With a limit of at
 * most 10,000 ppm, the margin, a job shares no lane. */
uint32_t packer_loss_limit_ppm(uint32_t service_ppm, uint32_t tenant_ppm, uint32_t job_ppm);

/* 32-bit FNV-1a, the same everywhere. */
uint32_t packer_hash(const char *text);

#endif
