/* packer: which lane holds which piece of which tensor. PURE: no I/O, no clock, no randomness; the
 * same input gives the same plan on every machine.
 *
 * A plan is made for a batch of tensors at once (all tensors a job declares in one call), beside
 * what the lanes carry already. The policy cuts big tensors and spreads the pieces; the caller
 * gathers small pieces of one job on one lane into tasks.
 *
 * Zero means "not known" or "not limited" in every field but those that say otherwise. */
#ifndef GRADPOOL_PACKER_PACKER_H
#define GRADPOOL_PACKER_PACKER_H

#include <stddef.h>
#include <stdint.h>

/* How a job runs when it is alone. */
struct packer_timing {
    uint64_t period_ns; /* of a round; up to PACKER_PERIOD_NS_MAX */
    uint64_t spread_ns; /* lane time a round on its busiest lane while period_ns was measured */
    uint32_t loss_limit_ppm; /* packer_loss_limit_ppm(); 0: PACKER_LOSS_LIMIT_PPM */
    uint32_t spent_ppm;      /* of the limit: what fewer lanes than it once had cost it alone */
    /* How its rounds ended on that busiest lane; for packer_predict() only. */
    uint64_t span_ns;  /* from a round's first lane work to its last; 0: not known */
    uint64_t burst_ns; /* lane time since the job last had nothing to do there */
    uint64_t slack_ns; /* that the lane was through before the job's last one */
};

/* A measured job on a lane. */
struct packer_resident {
    uint64_t job;                /* the caller's, for reasons and reports */
    uint64_t lane_ns;            /* lane time a round that it takes on this lane */
    struct packer_timing timing; /* period_ns must be known */
};

enum packer_lane_state {
    PACKER_LANE_OPEN,
    PACKER_LANE_PARKED,    /* its aggregator runs */
    PACKER_LANE_UNSTARTED, /* its aggregator would have to start */
};

/* What the lanes of one NUMA node share. */
struct packer_node {
    uint64_t memory_bytes;    /* to spare; 0 means none here; UINT64_MAX: not limited */
    uint64_t nic_bytes_per_s; /* to spare; 0 means none here; UINT64_MAX: not limited */
};

struct packer_lane {
    uint32_t id;
    uint32_t jobs;         /* hosted now, besides the job to be placed */
    uint64_t load_bytes;   /* of all pieces on it now */
    uint64_t job_bytes;    /* of those, pieces of the job to be placed */
    uint64_t load_ppm;     /* measured share of the lane's time in use, parts per million */
    uint64_t memory_bytes; /* to spare; UINT64_MAX: not limited */
    int32_t numa;
    uint32_t node; /* position in the request's nodes; read when there are any */
    enum packer_lane_state state;
    uint64_t nic_bytes_per_s; /* to spare */
    uint64_t job_lane_ns;     /* lane time a round of the job to be placed, from earlier calls */
    const struct packer_resident *residents; /* those of `jobs` that are measured */
    size_t residents_count;
};

struct packer_tensor {
    uint32_t id;        /* the caller's, comes back in the plan */
    uint32_t name_hash; /* for `hash`; packer_hash() of the name */
    const char *name;   /* for reasons; NULL: its id */
    uint64_t elements;
    uint32_t element_bytes;
    uint64_t lane_ns;     /* lane time a round, all of it; 0 costs none */
    uint64_t state_bytes; /* memory that it takes on its lanes; 0: its own bytes */
    uint64_t wire_bytes;  /* moved a round, both ways and for all workers; 0 costs none */
};

struct packer_request {
    const char *policy;       /* a name from packer_policies(); NULL: the default */
    uint32_t workers;         /* of the job: `dedicated` takes that many lanes */
    uint64_t piece_bytes_max; /* no piece larger; 0: PACKER_PIECE_BYTES_MAX */
    uint64_t job_key; /* of the job (e.g. its id): spreads jobs where a policy needs a start */
    const struct packer_lane *lanes; /* ascending ids */
    size_t lanes_count;
    const struct packer_tensor *tensors;
    size_t tensors_count;
    struct packer_timing timing; /* of the job */
    uint32_t lanes_max;          /* of one job; 0: max(8, workers). For the policies with a limit */
    const struct packer_node *nodes;
    size_t nodes_count;
};

#define PACKER_LOSS_LIMIT_PPM UINT32_C(50000)
#define PACKER_PERIOD_NS_MAX (UINT64_C(1) << 53) /* exact as a double; 104 days */
#define PACKER_PIECE_BYTES_MAX (UINT64_C(4) << 20)
#define PACKER_PIECE_BYTES_FINE (UINT64_C(1) << 20) /* no finer for packer_piece_bytes() */

struct packer_piece {
    uint32_t tensor;   /* packer_tensor.id */
    uint32_t lane;     /* packer_lane.id */
    uint64_t first;    /* element */
    uint64_t elements; /* 0 only for a tensor without elements, which gets one piece (barrier) */
};

/* How large pieces of a job of `bytes` may be, so that as many lanes can be filled evenly (P4). */
uint64_t packer_piece_bytes(uint64_t piece_bytes_max, uint64_t bytes, size_t lanes);

/* What becomes of a lane. The losses are predictions, with the margin of the policy; they are known
 * for measured jobs under a policy with a loss limit, else 0. */
struct packer_share {
    uint32_t lane;
    enum packer_lane_state state; /* not PACKER_LANE_OPEN: the plan opens it */
    uint64_t lane_ns;             /* of the placed job, a round, earlier calls included */
    uint64_t spare_ns;            /* that it could still take here within every limit */
    uint32_t loss_ppm;            /* of the placed job */
    uint32_t worst_ppm;           /* the largest of the other jobs' */
    uint64_t worst_job;           /* whose; 0 when there is none */
};

struct packer_plan {
    struct packer_piece *pieces; /* in order of the request's tensors, then of `first` */
    size_t pieces_count;
    struct packer_share *shares; /* one for each lane with pieces of this plan, ascending ids */
    size_t shares_count;
};

/* Names of the policies, the default first, then NULL. */
const char *const *packer_policies(void);
/* Those for a service; the others are baselines. */
const char *const *packer_offered_policies(void);

/* -EINVAL: unknown policy (the reason lists them) or a request that makes no sense (lanes not in
 * order, sizes beyond 2^64, elements larger than a piece), -ENOSPC: refused (no lane, memory),
 * -ENOMEM. On an error `reason` (may be NULL with 0 bytes) says why in one sentence, and the plan
 * is untouched. */
int packer_place(const struct packer_request *request, struct packer_plan *ret_plan, char *reason,
                 size_t reason_bytes);
void packer_plan_fini(struct packer_plan *plan);

/* Predicted loss of each job on one lane, 0 to 1, without any margin. `policy` is one with a loss
 * limit; -EINVAL otherwise, or when a period is 0 or too long. A job's loss is the largest over its
 * lanes. */
int packer_losses(const char *policy, const struct packer_resident *jobs, size_t count,
                  double *ret_losses);

/* What each job is likely to lose on one lane, 0 to 1: of those whose span_ns and spread_ns are
 * known, the pieces that come while the job still computes cost nothing (L8); of the others as
 * packer_losses() has it. Nothing is placed by it. Errors as of packer_losses(). */
int packer_predict(const char *policy, const struct packer_resident *jobs, size_t count,
                   double *ret_losses);

/* The strictest of those named (not 0), PACKER_LOSS_LIMIT_PPM when none is. At most 10,000 ppm, the
 * margin, means lanes of its own. */
uint32_t packer_loss_limit_ppm(uint32_t service_ppm, uint32_t tenant_ppm, uint32_t job_ppm);

/* 32-bit FNV-1a, the same everywhere. */
uint32_t packer_hash(const char *text);

#endif
