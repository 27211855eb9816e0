/* packer: which lane holds which piece of which tensor. PURE: no I/O, no clock, no randomness; the
 * same input gives the same plan on every machine.
 *
 * A plan is made for a batch of tensors at once (all tensors a job declares in one call), beside
 * what the lanes carry already. The policy cuts big tensors and spreads the pieces; the caller
 * gathers small pieces of one job on one lane into tasks. */
#ifndef GRADPOOL_PACKER_PACKER_H
#define GRADPOOL_PACKER_PACKER_H

#include <stddef.h>
#include <stdint.h>

struct packer_lane {
    uint32_t id;
    uint32_t jobs;         /* hosted now, besides the job to be placed */
    uint64_t load_bytes;   /* of all pieces on it now */
    uint64_t job_bytes;    /* of those, pieces of the job to be placed */
    uint64_t load_ppm;     /* measured share of the lane's time in use, parts per million */
    uint64_t memory_bytes; /* to spare; UINT64_MAX: not limited */
    int32_t numa;
};

struct packer_tensor {
    uint32_t id;        /* the caller's, comes back in the plan */
    uint32_t name_hash; /* for `hash`; packer_hash() of the name */
    uint64_t elements;
    uint32_t element_bytes;
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
};

#define PACKER_PIECE_BYTES_MAX (UINT64_C(4) << 20)

struct packer_piece {
    uint32_t tensor;   /* packer_tensor.id */
    uint32_t lane;     /* packer_lane.id */
    uint64_t first;    /* element */
    uint64_t elements; /* 0 only for a tensor without elements, which gets one piece (barrier) */
};

struct packer_plan {
    struct packer_piece *pieces; /* in order of the request's tensors, then of `first` */
    size_t pieces_count;
};

/* Names of the policies, the default first, then NULL. */
const char *const *packer_policies(void);

/* -EINVAL: unknown policy (the reason lists them) or a request that makes no sense (lanes not in
 * order, sizes beyond 2^64, elements larger than a piece), -ENOSPC: refused (no lane, memory),
 * -ENOMEM. On an error `reason` (may be NULL with 0 bytes) says why in one sentence, and the plan
 * is untouched. */
int packer_place(const struct packer_request *request, struct packer_plan *ret_plan, char *reason,
                 size_t reason_bytes);
void packer_plan_fini(struct packer_plan *plan);

/* 32-bit FNV-1a, the same everywhere. */
uint32_t packer_hash(const char *text);

#endif
