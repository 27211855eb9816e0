/* Owns the rule of MXNet's key-value store: a small tensor goes to one server as a whole, a large
 * one is split evenly over all servers. A baseline that ignores the load. Source: README.md. */
#include "packer/baseline/baseline.h"

/* Number of elements above which a tensor is split. If pieces are smaller than
 * PACKER_PIECE_BYTES_MAX, this limit is smaller in proportion. */
#define BIG_TENSOR_ELEMENTS 1000000
#define KEY_FACTOR 9973

/* Returns elements * part / parts, rounded to nearest, halves up. No product overflows, because
 * there are at most 2^16 lanes (PLACEMENT_LANES_MAX). */
static uint64_t split_point(uint64_t elements, uint64_t part, uint64_t parts)
{
    uint64_t whole = elements / parts, rest = elements % parts;

    return part * whole + (2 * part * rest + parts) / (2 * parts);
}

static int put_split(struct placement *placement, size_t tensor)
{
    uint64_t elements = placement->request->tensors[tensor].elements;
    size_t lanes = placement->request->lanes_count;

    for (size_t i = 0; i < lanes; i++) {
        uint64_t first = split_point(elements, i, lanes);
        int error =
            placement_put(placement, tensor, i, first, split_point(elements, i + 1, lanes) - first);

        if (error < 0)
            return error;
    }
    return 0;
}

int policy_mxnet(struct placement *placement)
{
    const struct packer_request *request = placement->request;
    uint64_t piece_bytes = placement->piece_bytes_max < PACKER_PIECE_BYTES_MAX
                               ? placement->piece_bytes_max
                               : PACKER_PIECE_BYTES_MAX;
    uint64_t big = BIG_TENSOR_ELEMENTS * piece_bytes / PACKER_PIECE_BYTES_MAX;

    for (size_t i = 0; i < request->tensors_count; i++) {
        uint64_t elements = request->tensors[i].elements;
        int error;

        if (elements < big || elements < request->lanes_count || request->tensors[i].is_whole)
            error = placement_put(placement, i, i * KEY_FACTOR % request->lanes_count, 0, elements);
        else
            error = put_split(placement, i);
        if (error < 0)
            return error;
    }
    return 0;
}
