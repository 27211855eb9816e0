/* placement: the state of one request during its placement. Counts bytes, memory and bandwidth: no
 * policy can overfill a lane or make a piece too large. Only packer/ uses this header. */
#ifndef GRADPOOL_PACKER_PLACEMENT_PLACEMENT_H
#define GRADPOOL_PACKER_PLACEMENT_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "packer/packer.h"

#define PLACEMENT_LANES_MAX (UINT32_C(1) << 16)
#define PLACEMENT_PIECES_MAX (UINT32_C(1) << 22)

struct placement_lane {
    uint64_t bytes;        /* bytes of all pieces on the lane, including pieces of this placement */
    uint64_t memory_bytes; /* memory left; UINT64_MAX: not limited */
    /* load in steps; two lanes with the same value are treated as equally busy */
    uint64_t load_step;
    uint64_t nic_bytes_per_s; /* bandwidth left; UINT64_MAX: not limited */
    uint64_t job_lane_ns;     /* lane time of a round of the placed job on this lane */
    bool usable;              /* whether the policy may use the lane */
    /* whether the lane has pieces of the placed job, from this call or earlier calls */
    bool hosts_job;
    bool taken; /* whether the lane has a piece from this placement */
};

/* Resources that a range of a tensor needs from its lane and node. */
struct placement_need {
    uint64_t bytes; /* elements x element_bytes */
    uint64_t memory_bytes;
    uint64_t nic_bytes_per_s;
    uint64_t lane_ns;
};

struct placement {
    const struct packer_request *request;
    uint64_t piece_bytes_max;
    uint64_t total_bytes; /* bytes of all tensors */
    size_t total_pieces;  /* number of pieces of all tensors, cut by placement_piece_elements() */
    struct placement_lane *lanes; /* one for each lane of the request */
    struct packer_node *nodes;    /* free memory and bandwidth of each node */
    /* One for each lane. The policy sets the losses, placement_finish() the other fields. */
    struct packer_share *shares;
    struct packer_piece *pieces; /* `tensor` and `lane` are positions until placement_finish() */
    size_t pieces_count;
    size_t pieces_capacity;
    char *reason;
    size_t reason_bytes;
};

/* Checks the request, and starts the placement. Errors, with a reason: -EINVAL: inconsistent
 * request; -ENOSPC: the lanes together lack the memory; -ENOMEM. */
int placement_init(struct placement *placement, const struct packer_request *request, char *reason,
                   size_t reason_bytes);
void placement_fini(struct placement *placement);

/* Returns the number of elements of each piece except the last, if `elements` of the tensor are cut
 * into the fewest pieces of equal size. The result is at least 1. */
uint64_t placement_piece_elements(const struct placement *placement, size_t tensor,
                                  uint64_t elements);

/* Places a range of a tensor on one lane, cut into several pieces if the range is too large for one
 * piece. -ENOSPC with a reason: the lane lacks memory or bandwidth. */
int placement_put(struct placement *placement, size_t tensor, size_t lane, uint64_t first,
                  uint64_t elements);

struct placement_need placement_need(const struct placement *placement, size_t tensor,
                                     uint64_t elements);

/* Returns whether a usable lane and its node have the memory and the bandwidth (P7). */
bool placement_lane_fits(const struct placement *placement, size_t lane,
                         const struct placement_need *need);
/* Returns the free memory or bandwidth of the lane or of its node, whichever is smaller. */
uint64_t placement_memory_left(const struct placement *placement, size_t lane);
uint64_t placement_nic_left(const struct placement *placement, size_t lane);

uint64_t placement_tensor_bytes(const struct placement *placement, size_t tensor);

/* Removes all pieces for another attempt, and makes all lanes usable. */
void placement_reset(struct placement *placement);

/* Sorts the pieces, replaces positions by ids, and moves pieces and shares to the plan. Never
 * fails. */
void placement_finish(struct placement *placement, struct packer_plan *ret_plan);

/* Writes the reason and returns `error`. */
int placement_refuse(struct placement *placement, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Refuses a piece that fits on no lane: returns -ENOSPC. The reason contains the need of the piece,
 * and the largest free amount of a lane. */
int placement_refuse_lanes(struct placement *placement, size_t tensor,
                           const struct placement_need *need);

#endif
