/* Distributes the pieces so that each lane gets pieces from all parts of the request. Gradients
 * become ready one after the other: a lane with only the last pieces would first be idle and then
 * finish late (P14). Uses only lanes that have pieces of the placement, and never exceeds the lane
 * time or the memory that a lane has left. */
#include "packer/placement/distribute.h"

#include <errno.h>
#include <stdlib.h>

/* A lane that gets pieces. */
struct target {
    size_t lane;
    double quota_ns;    /* lane time of this placement on the lane before the distribution */
    double assigned_ns; /* lane time of pieces assigned so far */
};

/* A piece to place. */
struct loose_piece {
    uint64_t first, elements, lane_ns;
    uint32_t tensor; /* position of the tensor in the request */
    bool is_small;   /* the piece has less lane time than `small_ns`, so it is placed last */
};

struct distribution {
    struct placement *placement;
    const double *room_ns;
    struct loose_piece *pieces;
    size_t count;
    struct target *targets;
    size_t targets_count;
};

static int compare_position(const struct loose_piece *x, const struct loose_piece *y)
{
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

static int compare_in_order(const void *a, const void *b)
{
    const struct loose_piece *x = a, *y = b;

    return x->is_small != y->is_small ? x->is_small - y->is_small : compare_position(x, y);
}

static int compare_largest_first(const void *a, const void *b)
{
    const struct loose_piece *x = a, *y = b;

    if (!x->is_small && !y->is_small && x->lane_ns != y->lane_ns)
        return x->lane_ns > y->lane_ns ? -1 : 1;
    return compare_in_order(a, b);
}

static void take_targets(struct distribution *d)
{
    const struct placement *placement = d->placement;

    for (size_t i = 0; i < placement->request->lanes_count; i++) {
        uint64_t before_ns = placement->request->lanes[i].job_lane_ns;
        uint64_t now_ns = placement->lanes[i].job_lane_ns;

        if (now_ns > before_ns)
            d->targets[d->targets_count++] =
                (struct target){.lane = i, .quota_ns = (double)(now_ns - before_ns)};
    }
}

/* Returns the lane with the smallest ratio of lane time (assigned pieces plus this piece) to quota;
 * NULL: the piece fits on no lane. */
static struct target *choose(const struct distribution *d, const struct placement_need *need)
{
    const struct placement *placement = d->placement;
    struct target *best = NULL;
    double ns = (double)need->lane_ns;

    for (size_t i = 0; i < d->targets_count; i++) {
        struct target *target = &d->targets[i];
        double taken_ns = (double)placement->lanes[target->lane].job_lane_ns;

        if (taken_ns + ns > d->room_ns[target->lane] ||
            !placement_lane_fits(placement, target->lane, need))
            continue;
        if (!best || (target->assigned_ns + ns) * best->quota_ns <
                         (best->assigned_ns + ns) * target->quota_ns)
            best = target;
    }
    return best;
}

/* Distributes all pieces. -ENOSPC: a piece fits on no lane. */
static int distribute_all(struct distribution *d, int (*compare)(const void *, const void *))
{
    int error = 0;

    qsort(d->pieces, d->count, sizeof(*d->pieces), compare);
    placement_reset(d->placement);
    for (size_t i = 0; i < d->targets_count; i++)
        d->targets[i].assigned_ns = 0;
    for (size_t i = 0; i < d->count && error == 0; i++) {
        const struct loose_piece *piece = &d->pieces[i];
        struct placement_need need = placement_need(d->placement, piece->tensor, piece->elements);
        struct target *target = choose(d, &need);

        if (!target)
            return -ENOSPC;
        target->assigned_ns += (double)need.lane_ns;
        error =
            placement_put(d->placement, piece->tensor, target->lane, piece->first, piece->elements);
    }
    return error;
}

static int distribution_init(struct distribution *d, double small_ns)
{
    struct placement *placement = d->placement;

    d->count = placement->pieces_count;
    d->targets = calloc(placement->request->lanes_count + 1, sizeof(*d->targets));
    d->pieces = calloc(d->count + 1, sizeof(*d->pieces));
    if (!d->targets || !d->pieces)
        return placement_refuse(placement, -ENOMEM,
                                "the packer has no memory to choose lanes for %zu pieces",
                                d->count);
    for (size_t i = 0; i < d->count; i++) {
        const struct packer_piece *piece = &placement->pieces[i];
        uint64_t ns = placement_need(placement, piece->tensor, piece->elements).lane_ns;

        d->pieces[i] = (struct loose_piece){.first = piece->first,
                                            .elements = piece->elements,
                                            .lane_ns = ns,
                                            .tensor = piece->tensor,
                                            .is_small = (double)ns < small_ns};
    }
    take_targets(d);
    return 0;
}

int distribute_in_order(struct placement *placement, const double *room_ns, double small_ns)
{
    struct distribution d = {.placement = placement, .room_ns = room_ns};
    int error = distribution_init(&d, small_ns);

    if (error == 0 && d.targets_count > 1) {
        error = distribute_all(&d, compare_in_order);
        if (error == -ENOSPC)
            error = distribute_all(&d, compare_largest_first);
    }
    free(d.targets);
    free(d.pieces);
    return error;
}
