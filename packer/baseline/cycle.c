/* Owns the policy `cycle`: the lane time of all rounds that begin within the longest period of a
 * lane must fit into this period (L5). A baseline. */
#include "packer/baseline/baseline.h"
#include "packer/policy/policy.h"

#define HALVINGS 60

/* The cycle of a lane: its longest period, and the lane time of all rounds that fit into it. */
struct cycle {
    uint64_t longest_ns;
    double busy_ns;
};

static struct cycle find_cycle(const struct packer_resident *jobs, size_t count, uint64_t least_ns)
{
    struct cycle cycle = {least_ns, 0};

    for (size_t i = 0; i < count; i++)
        if (jobs[i].timing.period_ns > cycle.longest_ns)
            cycle.longest_ns = jobs[i].timing.period_ns;
    for (size_t i = 0; i < count; i++)
        cycle.busy_ns +=
            (double)(cycle.longest_ns / jobs[i].timing.period_ns) * (double)jobs[i].lane_ns;
    return cycle;
}

static double cycle_loss(const struct cycle *cycle, const struct packer_timing *timing,
                         double lane_ns)
{
    double longest_ns = (double)cycle->longest_ns;
    double rounds = (double)(cycle->longest_ns / timing->period_ns);
    double cycle_ns = longest_ns > cycle->busy_ns ? longest_ns : cycle->busy_ns;
    double alone_ns = loss_alone_ns(timing, lane_ns), round_ns = cycle_ns / rounds;

    return 1 - (double)timing->period_ns / (round_ns > alone_ns ? round_ns : alone_ns);
}

static void cycle_losses(const struct packer_resident *jobs, size_t count, double *ret_losses)
{
    struct cycle cycle = find_cycle(jobs, count, 0);

    for (size_t i = 0; i < count; i++)
        ret_losses[i] = cycle_loss(&cycle, &jobs[i].timing, (double)jobs[i].lane_ns);
}

static bool cycle_holds(const struct cycle *cycle, const struct packer_resident *residents,
                        size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (cycle_loss(cycle, &residents[i].timing, (double)residents[i].lane_ns) >
            loss_limit(&residents[i].timing))
            return false;
    return true;
}

/* Returns the largest lane time that the job may have beside the residents. Uses bisection, because
 * a formula would need many cases. Negative: the job may not use the lane. */
static double cycle_room_ns(const struct packer_resident *residents, size_t count,
                            const struct packer_timing *job)
{
    const struct cycle before = find_cycle(residents, count, job->period_ns);
    double rounds = (double)(before.longest_ns / job->period_ns);
    double low_ns = -1, high_ns = 2 * loss_alone_room_ns(job, loss_limit(job));

    for (int i = 0; i < HALVINGS; i++) {
        double ns = i == 0 ? 0 : (low_ns + high_ns) / 2;
        struct cycle cycle = {before.longest_ns, before.busy_ns + rounds * ns};
        bool holds =
            cycle_loss(&cycle, job, ns) <= loss_limit(job) && cycle_holds(&cycle, residents, count);

        if (!holds && i == 0)
            return -1;
        *(holds ? &low_ns : &high_ns) = ns;
    }
    return low_ns;
}

const struct loss_rule loss_cycle = {"cycle", 0, cycle_losses, NULL, cycle_room_ns};

int policy_cycle(struct placement *placement) { return policy_under_limit(placement, &loss_cycle); }
