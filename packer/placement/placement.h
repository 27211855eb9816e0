/* placement: what a policy works on while it places one request. Keeps the books (bytes, memory)
 * so that no policy can overfill a lane or make a piece too large. Not seen outside packer/. */
#ifndef GRADPOOL_PACKER_PLACEMENT_PLACEMENT_H
#define GRADPOOL_PACKER_PLACEMENT_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "packer/packer.h"

#define PLACEMENT_LANES_MAX (UINT32_C(1) << 16)
#define PLACEMENT_PIECES_MAX (UINT32_C(1) << 22)

struct placement_lane {
    uint64_t bytes;           /* on it, this placement's pieces included */
    uint64_t memory_bytes;    /* left; UINT64_MAX: not limited */
    uint64_t load_step;       /* coarse load: lanes of one step count as equally busy */
    uint64_t nic_bytes_per_s; /* left; UINT64_MAX: not limited */
    uint64_t job_lane_ns;     /* a round, of the job to be placed */
    bool usable;              /* a policy may rule lanes out */
    bool hosts_job;
    bool taken; /* has a piece of this placement */
};

/* What a range of a tensor takes from a lane and its node. */
struct placement_need {
    uint64_t bytes; /* of data */
    uint64_t memory_bytes;
    uint64_t nic_bytes_per_s;
    uint64_t lane_ns;
};

struct placement {
    const struct packer_request *request;
    uint64_t piece_bytes_max;
    uint64_t total_bytes;         /* of all tensors */
    size_t total_pieces;          /* when each tensor is cut as placement_piece_elements() says */
    struct placement_lane *lanes; /* one for each lane of the request */
    struct packer_node *nodes;    /* what is left of each */
    struct packer_share
        *shares; /* one for each lane; filled by placement_finish(), but the losses */
    struct packer_piece *pieces; /* `tensor` and `lane` are positions until placement_finish() */
    size_t pieces_count;
    size_t pieces_capacity;
    char *reason;
    size_t reason_bytes;
};

/* Checks the request. -EINVAL with a reason: it makes no sense; -ENOSPC: nothing could hold it. */
int placement_init(struct placement *placement, const struct packer_request *request, char *reason,
                   size_t reason_bytes);
void placement_fini(struct placement *placement);

/* Elements of each piece but the last, when `elements` of the tensor are cut into the fewest
 * pieces of equal size; at least 1. */
uint64_t placement_piece_elements(const struct placement *placement, size_t tensor,
                                  uint64_t elements);

/* Puts a range of a tensor on one lane, cut where it is larger than a piece may be. -ENOSPC with a
 * reason when the lane lacks the memory or the bandwidth. */
int placement_put(struct placement *placement, size_t tensor, size_t lane, uint64_t first,
                  uint64_t elements);

struct placement_need placement_need(const struct placement *placement, size_t tensor,
                                     uint64_t elements);

/* Whether a lane that is in use has the memory and the bandwidth, its node's too (P7). */
bool placement_lane_fits(const struct placement *placement, size_t lane,
                         const struct placement_need *need);
/* What the lane, or its node when that is less, has left. */
uint64_t placement_memory_left(const struct placement *placement, size_t lane);
uint64_t placement_nic_left(const struct placement *placement, size_t lane);

uint64_t placement_tensor_bytes(const struct placement *placement, size_t tensor);

/* Undoes all that was put, so that a policy may try again. */
void placement_reset(struct placement *placement);

/* Sorts the pieces, puts ids in place of positions, hands them over. Cannot fail. */
void placement_finish(struct placement *placement, struct packer_plan *ret_plan);

/* Writes the reason, returns `error`. */
int placement_refuse(struct placement *placement, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* No lane can take so much in one piece: says what was needed and what there was. */
int placement_refuse_lanes(struct placement *placement, size_t tensor,
                           const struct placement_need *need);

#endif
