/* Cuts tensors into pieces and sorts the pieces. Chooses no lane. The order of equal pieces never
 * depends on qsort() (P1). */
#include "packer/placement/cut.h"

#include <errno.h>
#include <stdlib.h>

#define PIECES_A_LANE 16

uint64_t packer_piece_bytes(uint64_t piece_bytes_max, uint64_t bytes, size_t lanes)
{
    while (lanes > 1 && piece_bytes_max >= 2 * PACKER_PIECE_BYTES_FINE &&
           bytes / piece_bytes_max < PIECES_A_LANE * (uint64_t)lanes)
        piece_bytes_max /= 2;
    return piece_bytes_max;
}

static int compare_cuts(const void *a, const void *b)
{
    const struct cut *x = a, *y = b;

    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

static size_t cut_tensor(const struct placement *placement, size_t tensor, bool by_bytes,
                         struct cut *ret_cuts)
{
    const struct packer_tensor *t = &placement->request->tensors[tensor];
    uint64_t step = placement_piece_elements(placement, tensor, t->elements), first = 0;
    size_t count = 0;

    do {
        uint64_t left = t->elements - first, elements = left < step ? left : step;
        struct placement_need need = placement_need(placement, tensor, elements);

        ret_cuts[count++] = (struct cut){
            .weight = by_bytes ? need.bytes : need.lane_ns,
            .first = first,
            .elements = elements,
            .tensor = (uint32_t)tensor,
        };
        first += elements;
    } while (first < t->elements);
    return count;
}

static int cut_all(struct placement *placement, bool by_bytes, struct cut **ret_cuts,
                   size_t *ret_count)
{
    struct cut *cuts = calloc(placement->total_pieces, sizeof(*cuts));
    size_t count = 0;

    if (!cuts)
        return placement_refuse(placement, -ENOMEM, "the packer has no memory to sort %zu pieces",
                                placement->total_pieces);
    for (size_t i = 0; i < placement->request->tensors_count; i++)
        count += cut_tensor(placement, i, by_bytes, cuts + count);
    qsort(cuts, count, sizeof(*cuts), compare_cuts);
    *ret_cuts = cuts;
    *ret_count = count;
    return 0;
}

int cut_by_bytes(struct placement *placement, struct cut **ret_cuts, size_t *ret_count)
{
    return cut_all(placement, true, ret_cuts, ret_count);
}

int cut_by_lane_time(struct placement *placement, struct cut **ret_cuts, size_t *ret_count)
{
    return cut_all(placement, false, ret_cuts, ret_count);
}
