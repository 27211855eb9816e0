/* Owns the policy `rate`: the jobs' shares of a lane have a sum of at most 1 (L4). A baseline. */
#include "packer/baseline/baseline.h"
#include "packer/policy/policy.h"

static double sum_of_shares(const struct packer_resident *jobs, size_t count)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += loss_share(&jobs[i]);
    return sum;
}

static void rate_losses(const struct packer_resident *jobs, size_t count, double *ret_losses)
{
    double sum = sum_of_shares(jobs, count), stretch = sum > 1 ? sum : 1;

    for (size_t i = 0; i < count; i++) {
        double alone_ns = loss_alone_ns(&jobs[i].timing, (double)jobs[i].lane_ns);

        ret_losses[i] = 1 - (double)jobs[i].timing.period_ns / (alone_ns * stretch);
    }
}

static double rate_room_ns(const struct packer_resident *residents, size_t count,
                           const struct packer_timing *job)
{
    double left = 1 - sum_of_shares(residents, count), own_ns, shared_ns;

    if (left < 0)
        return -1;
    own_ns = loss_alone_room_ns(job, loss_limit(job));
    shared_ns = loss_share_room_ns(job, left);
    return own_ns < shared_ns ? own_ns : shared_ns;
}

const struct loss_rule loss_rate = {"rate", 0, rate_losses, NULL, rate_room_ns};

int policy_rate(struct placement *placement) { return policy_under_limit(placement, &loss_rate); }
