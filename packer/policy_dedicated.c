/* Owns the rule of dedicated servers: as many lanes as the job has workers, each hosting no other
 * job, filled evenly. Must never take a lane that another job uses, however idle it is. */
#include <errno.h>
#include <inttypes.h>

#include "packer/policy.h"

/* Takes up to `wanted` lanes that host this job already (or not yet); says how many. */
static size_t take_lanes(struct placement *placement, size_t wanted, bool hosts_job)
{
    size_t taken = 0;

    for (size_t i = 0; i < placement->request->lanes_count && taken < wanted; i++) {
        struct placement_lane *lane = &placement->lanes[i];

        if (placement->request->lanes[i].jobs > 0 || lane->hosts_job != hosts_job)
            continue;
        lane->usable = true;
        lane->load_step = 0; /* its load is the job's own */
        taken++;
    }
    return taken;
}

int policy_dedicated(struct placement *placement)
{
    const struct packer_request *request = placement->request;
    size_t taken;

    if (request->workers == 0)
        return placement_refuse(placement, -EINVAL,
                                "dedicated takes a lane a worker: the job has no workers");
    for (size_t i = 0; i < request->lanes_count; i++)
        placement->lanes[i].usable = false;
    taken = take_lanes(placement, request->workers, true);
    taken += take_lanes(placement, request->workers - taken, false);
    if (taken < request->workers)
        return placement_refuse(placement, -ENOSPC,
                                "dedicated needs %" PRIu32
                                " lanes without another job, %zu of %zu have none",
                                request->workers, taken, request->lanes_count);
    return policy_least_loaded(placement);
}
