/* placement: what a policy works on while it places one request. Keeps the books (bytes, memory)
 * so that no policy can overfill a lane or make a piece too large. Not seen outside packer/. */
#ifndef GRADPOOL_PACKER_PLACEMENT_H
#define GRADPOOL_PACKER_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "packer/packer.h"

#define PLACEMENT_LANES_MAX (UINT32_C(1) << 16)
#define PLACEMENT_PIECES_MAX (UINT32_C(1) << 22)

struct placement_lane {
    uint64_t bytes;        /* on it, this placement's pieces included */
    uint64_t memory_bytes; /* left; UINT64_MAX: not limited */
    uint64_t load_step;    /* coarse load: lanes of one step count as equally busy */
    bool usable;           /* a policy may rule lanes out */
    bool hosts_job;
};

struct placement {
    const struct packer_request *request;
    uint64_t piece_bytes_max;
    uint64_t total_bytes;         /* of all tensors */
    size_t total_pieces;          /* when each tensor is cut as placement_piece_elements() says */
    struct placement_lane *lanes; /* one for each lane of the request */
    struct packer_piece *pieces;  /* `tensor` and `lane` are positions until placement_finish() */
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
 * reason when the lane lacks the memory. */
int placement_put(struct placement *placement, size_t tensor, size_t lane, uint64_t first,
                  uint64_t elements);

bool placement_lane_fits(const struct placement *placement, size_t lane, uint64_t bytes);
uint64_t placement_tensor_bytes(const struct placement *placement, size_t tensor);

/* Sorts the pieces, puts ids in place of positions, hands them over. Cannot fail. */
void placement_finish(struct placement *placement, struct packer_plan *ret_plan);

/* Writes the reason, returns `error`. */
int placement_refuse(struct placement *placement, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* No lane can take so many bytes in one piece: says what was needed and what there was. */
int placement_refuse_memory(struct placement *placement, size_t tensor, uint64_t bytes);

#endif
