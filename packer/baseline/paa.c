/* Owns the parameter assignment algorithm (PAA) of Optimus: places tensors in order of size, to
 * equalize the bytes and the number of keys of all servers. A baseline that ignores the load of
 * other jobs. Memory limits are our addition. Source: README.md. */
#include <errno.h>
#include <stdlib.h>

#include "packer/baseline/baseline.h"

/* A tiny tensor goes to the lane with the fewest keys. A tensor is tiny if it has at most a
 * hundredth of the mean bytes of a lane. */
#define TINY_PARTS 100

struct sized {
    uint64_t bytes;
    uint32_t index;
};

struct paa {
    struct placement *placement;
    size_t lanes_count;
    uint64_t mean_bytes;
    uint64_t tiny_bytes;
    uint64_t *lane_bytes;  /* number of bytes of the job on each lane, counted in this call */
    uint64_t *lane_keys;   /* number of ranges of tensors on each lane, counted in this call */
    struct sized *tensors; /* all tensors, the largest first */
    struct sized *lanes;   /* buffer of put_large(), sorted, the emptiest first */
};

static int compare_falling(const void *a, const void *b)
{
    const struct sized *x = a, *y = b;

    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static int compare_rising(const void *a, const void *b)
{
    const struct sized *x = a, *y = b;

    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static int put(struct paa *paa, size_t tensor, size_t lane, uint64_t first, uint64_t elements)
{
    int error = placement_put(paa->placement, tensor, lane, first, elements);

    if (error < 0)
        return error;
    paa->lane_bytes[lane] += elements * paa->placement->request->tensors[tensor].element_bytes;
    paa->lane_keys[lane]++;
    return 0;
}

/* Returns the lane with the smallest entry in `values`, among the lanes with enough room;
 * lanes_count: no lane has room. */
static size_t smallest(const struct paa *paa, const uint64_t *values,
                       const struct placement_need *need)
{
    size_t best = paa->lanes_count;

    for (size_t i = 0; i < paa->lanes_count; i++)
        if (placement_lane_fits(paa->placement, i, need) &&
            (best == paa->lanes_count || values[i] < values[best]))
            best = i;
    return best;
}

/* Returns the fullest lane that stays within the mean number of bytes. If no lane stays within the
 * mean, returns the emptiest lane. */
static size_t best_fit(const struct paa *paa, const struct placement_need *need)
{
    size_t best = paa->lanes_count;

    for (size_t i = 0; i < paa->lanes_count; i++) {
        if (!placement_lane_fits(paa->placement, i, need) || need->bytes > paa->mean_bytes ||
            paa->lane_bytes[i] > paa->mean_bytes - need->bytes)
            continue;
        if (best == paa->lanes_count || paa->lane_bytes[i] > paa->lane_bytes[best])
            best = i;
    }
    return best < paa->lanes_count ? best : smallest(paa, paa->lane_bytes, need);
}

static int put_best_fit(struct paa *paa, size_t tensor, uint64_t first, uint64_t elements)
{
    struct placement_need need = placement_need(paa->placement, tensor, elements);
    size_t lane = best_fit(paa, &need);

    if (lane == paa->lanes_count)
        return placement_refuse_lanes(paa->placement, tensor, &need);
    return put(paa, tensor, lane, first, elements);
}

static int put_tiny(struct paa *paa, size_t tensor)
{
    uint64_t elements = paa->placement->request->tensors[tensor].elements;
    struct placement_need need = placement_need(paa->placement, tensor, elements);
    size_t lane = smallest(paa, paa->lane_keys, &need);

    if (lane == paa->lanes_count)
        return placement_refuse_lanes(paa->placement, tensor, &need);
    return put(paa, tensor, lane, 0, elements);
}

/* Returns the bytes that the lane may still get: the bytes missing to the mean, limited by the free
 * memory of the lane. */
static uint64_t gap_bytes(const struct paa *paa, size_t lane)
{
    uint64_t used = paa->lane_bytes[lane], memory = paa->placement->lanes[lane].memory_bytes;
    uint64_t gap = used < paa->mean_bytes ? paa->mean_bytes - used : 0;

    return gap < memory ? gap : memory;
}

/* Fills one lane after the other up to the mean, the emptiest lane first. The last part of the
 * tensor is placed by best_fit(). */
static int put_large(struct paa *paa, size_t tensor)
{
    const struct packer_tensor *t = &paa->placement->request->tensors[tensor];
    uint64_t first = 0;

    for (size_t i = 0; i < paa->lanes_count; i++)
        paa->lanes[i] = (struct sized){paa->lane_bytes[i], (uint32_t)i};
    qsort(paa->lanes, paa->lanes_count, sizeof(*paa->lanes), compare_rising);
    for (size_t i = 0; i < paa->lanes_count; i++) {
        uint64_t elements = gap_bytes(paa, paa->lanes[i].index) / t->element_bytes;
        int error;

        if (elements == 0)
            continue;
        if (elements > t->elements - first)
            break;
        error = put(paa, tensor, paa->lanes[i].index, first, elements);
        if (error < 0)
            return error;
        first += elements;
    }
    return first == t->elements ? 0 : put_best_fit(paa, tensor, first, t->elements - first);
}

static int put_tensor(struct paa *paa, const struct sized *tensor)
{
    if (tensor->bytes <= paa->tiny_bytes)
        return put_tiny(paa, tensor->index);
    if (tensor->bytes <= paa->mean_bytes)
        return put_best_fit(paa, tensor->index, 0,
                            paa->placement->request->tensors[tensor->index].elements);
    return put_large(paa, tensor->index);
}

static void paa_fini(struct paa *paa)
{
    free(paa->lane_bytes);
    free(paa->lane_keys);
    free(paa->tensors);
    free(paa->lanes);
}

static int paa_init(struct paa *paa, struct placement *placement)
{
    size_t tensors = placement->request->tensors_count, lanes = placement->request->lanes_count;

    *paa = (struct paa){
        .placement = placement,
        .lanes_count = lanes,
        /* The mean is rounded up, so that all lanes filled to the mean have room for the job. */
        .mean_bytes = placement->total_bytes / lanes + (placement->total_bytes % lanes != 0),
        .tiny_bytes = placement->total_bytes / lanes / TINY_PARTS,
        .lane_bytes = calloc(lanes, sizeof(*paa->lane_bytes)),
        .lane_keys = calloc(lanes, sizeof(*paa->lane_keys)),
        .tensors = calloc(tensors, sizeof(*paa->tensors)),
        .lanes = calloc(lanes, sizeof(*paa->lanes)),
    };
    if (!paa->lane_bytes || !paa->lane_keys || !paa->tensors || !paa->lanes)
        return placement_refuse(placement, -ENOMEM, "the packer has no memory to sort %zu tensors",
                                tensors);
    for (size_t i = 0; i < tensors; i++)
        paa->tensors[i] = (struct sized){placement_tensor_bytes(placement, i), (uint32_t)i};
    qsort(paa->tensors, tensors, sizeof(*paa->tensors), compare_falling);
    return 0;
}

int policy_paa(struct placement *placement)
{
    struct paa paa;
    int error = paa_init(&paa, placement);

    for (size_t i = 0; i < placement->request->tensors_count && error == 0; i++)
        error = put_tensor(&paa, &paa.tensors[i]);
    paa_fini(&paa);
    return error;
}
