/* Owns round-robin and hash, which use only the position or the name of a tensor. These baselines
 * ignore the load. If the chosen lane has no memory left, an error is returned, and no other lane
 * is tried. Sources of the rules: README.md. */
#include "packer/baseline/baseline.h"

static int put_whole(struct placement *placement, size_t tensor, uint64_t lane)
{
    return placement_put(placement, tensor, (size_t)lane, 0,
                         placement->request->tensors[tensor].elements);
}

int policy_round_robin(struct placement *placement)
{
    const struct packer_request *request = placement->request;

    for (size_t i = 0; i < request->tensors_count; i++) {
        /* Each term of the sum is reduced modulo the number of lanes, so that a large key causes no
         * overflow. */
        uint64_t start = request->job_key % request->lanes_count;
        int error =
            put_whole(placement, i, (start + i % request->lanes_count) % request->lanes_count);

        if (error < 0)
            return error;
    }
    return 0;
}

int policy_hash(struct placement *placement)
{
    const struct packer_request *request = placement->request;

    for (size_t i = 0; i < request->tensors_count; i++) {
        int error = put_whole(placement, i, request->tensors[i].name_hash % request->lanes_count);

        if (error < 0)
            return error;
    }
    return 0;
}
