/* cut: the pieces of a request before the choice of their lanes. Only packer/ uses this header. */
#ifndef GRADPOOL_PACKER_PLACEMENT_CUT_H
#define GRADPOOL_PACKER_PLACEMENT_CUT_H

#include "packer/placement/placement.h"

struct cut {
    uint64_t weight; /* sort key: bytes or lane time */
    uint64_t first;
    uint64_t elements;
    uint32_t tensor; /* position of the tensor in the request */
};

/* Cuts all tensors (P5) and sorts the pieces: the heaviest first, by bytes or by lane time, then by
 * position of the tensor, then by `first`. The caller frees `*ret_cuts`. Returns 0 or -ENOMEM. */
int cut_by_bytes(struct placement *placement, struct cut **ret_cuts, size_t *ret_count);
int cut_by_lane_time(struct placement *placement, struct cut **ret_cuts, size_t *ret_count);

#endif
