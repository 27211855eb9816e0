/* Owns the policy `dedicated`: a job gets as many lanes without other jobs as it has workers, and
 * its pieces fill these lanes evenly. A lane with another job is never used, even if that job is
 * idle. */
#include <errno.h>

#include "packer/policy/policy.h"

/* Makes up to `wanted` lanes in `state` without another job usable. `hosts_job`: whether to choose
 * lanes with pieces of the job, or lanes without its pieces. Returns the number of lanes made
 * usable. */
static size_t take_lanes(struct placement *placement, size_t wanted, bool hosts_job,
                         enum packer_lane_state state)
{
    size_t taken = 0;

    for (size_t i = 0; i < placement->request->lanes_count && taken < wanted; i++) {
        struct placement_lane *lane = &placement->lanes[i];
        const struct packer_lane *given = &placement->request->lanes[i];

        if (given->jobs > 0 || given->state != state || lane->hosts_job != hosts_job)
            continue;
        lane->usable = true;
        lane->load_step = 0; /* no other job uses the lane */
        taken++;
    }
    return taken;
}

/* Makes only lanes without another job usable, at most one for each worker; lanes of the job come
 * first. Returns their number. */
static size_t keep_own_lanes(struct placement *placement)
{
    size_t wanted = placement->request->workers, taken = 0;

    for (size_t i = 0; i < placement->request->lanes_count; i++)
        placement->lanes[i].usable = false;
    for (int hosts_job = 1; hosts_job >= 0; hosts_job--)
        for (unsigned state = PACKER_LANE_OPEN; state <= PACKER_LANE_UNSTARTED; state++)
            taken += take_lanes(placement, wanted - taken, hosts_job, state);
    return taken;
}

static int place(struct placement *placement, const char *who, size_t lanes_min)
{
    const struct packer_request *request = placement->request;
    size_t taken;

    if (request->workers == 0)
        return placement_refuse(
            placement, -EINVAL,
            "%s gives each worker a lane of its own, but the job has no workers", who);
    taken = keep_own_lanes(placement);
    if (taken < lanes_min)
        return placement_refuse(
            placement, -ENOSPC,
            "%s needs %zu lanes without another job, but only %zu of %zu lanes have no other job",
            who, lanes_min, taken, request->lanes_count);
    return policy_least_loaded(placement);
}

int policy_dedicated(struct placement *placement)
{
    return place(placement, "dedicated", placement->request->workers);
}

int policy_unmeasured(struct placement *placement)
{
    return place(placement, "a job that is not measured", 1);
}
