/* Owns the policy `least-loaded`: the largest piece first, each piece on the lane with the least
 * load. Rule P6 (README.md) orders lanes of equal load. */
#include <stdlib.h>

#include "packer/placement/cut.h"
#include "packer/policy/policy.h"

/* Returns whether a piece should go to lane a, which has the higher position, and not to lane b
 * (P6). */
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
    struct placement_need need = placement_need(placement, cut->tensor, cut->elements);
    size_t count = placement->request->lanes_count, best = count;

    for (size_t i = 0; i < count; i++) {
        if (!placement_lane_fits(placement, i, &need))
            continue;
        if (best == count || is_better(&placement->lanes[i], &placement->lanes[best]))
            best = i;
    }
    if (best == count)
        return placement_refuse_lanes(placement, cut->tensor, &need);
    return placement_put(placement, cut->tensor, best, cut->first, cut->elements);
}

int policy_least_loaded(struct placement *placement)
{
    struct cut *cuts;
    size_t count;
    int error = cut_by_bytes(placement, &cuts, &count);

    if (error < 0)
        return error;
    for (size_t i = 0; i < count && error == 0; i++)
        error = put_cut(placement, &cuts[i]);
    free(cuts);
    return error;
}
