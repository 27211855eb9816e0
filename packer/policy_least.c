/* Owns the default rule: pieces in order of size, each to the lane that carries least. Must never
 * depend on the order in which equal lanes are met: ties are settled by P6. */
#include <errno.h>
#include <stdlib.h>

#include "packer/policy.h"

/* A piece before it has a lane. */
struct cut {
    uint64_t bytes;
    uint64_t first;
    uint64_t elements;
    uint32_t tensor;
};

static int compare_cuts(const void *a, const void *b)
{
    const struct cut *x = a, *y = b;

    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

static size_t cut_tensor(const struct placement *placement, size_t tensor, struct cut *ret_cuts)
{
    const struct packer_tensor *t = &placement->request->tensors[tensor];
    uint64_t step = placement_piece_elements(placement, tensor, t->elements), first = 0;
    size_t count = 0;

    do {
        uint64_t left = t->elements - first, elements = left < step ? left : step;

        ret_cuts[count++] = (struct cut){
            .bytes = elements * t->element_bytes,
            .first = first,
            .elements = elements,
            .tensor = (uint32_t)tensor,
        };
        first += elements;
    } while (first < t->elements);
    return count;
}

/* Whether lane a is to be taken before lane b; a has the higher position. P6. */
static bool is_better(const struct placement_lane *a, const struct placement_lane *b)
{
    if (a->load_step != b->load_step)
        return a->load_step < b->load_step;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes;
    return a->hosts_job && !b->hosts_job;
}

static int put_cut(struct placement *placement, const struct cut *cut)
{
    size_t count = placement->request->lanes_count, best = count;

    for (size_t i = 0; i < count; i++) {
        if (!placement_lane_fits(placement, i, cut->bytes))
            continue;
        if (best == count || is_better(&placement->lanes[i], &placement->lanes[best]))
            best = i;
    }
    if (best == count)
        return placement_refuse_memory(placement, cut->tensor, cut->bytes);
    return placement_put(placement, cut->tensor, best, cut->first, cut->elements);
}

int policy_least_loaded(struct placement *placement)
{
    size_t count = 0;
    struct cut *cuts;
    int r = 0;

    cuts = calloc(placement->total_pieces, sizeof(*cuts));
    if (!cuts)
        return placement_refuse(placement, -ENOMEM, "no memory to sort %zu pieces",
                                placement->total_pieces);
    for (size_t i = 0; i < placement->request->tensors_count; i++)
        count += cut_tensor(placement, i, cuts + count);
    qsort(cuts, count, sizeof(*cuts), compare_cuts);
    for (size_t i = 0; i < count && r == 0; i++)
        r = put_cut(placement, &cuts[i]);
    free(cuts);
    return r;
}
