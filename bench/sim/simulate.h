/* Simulates a workload on a service, from its first job to the end of the clock. PURE. */
#ifndef GRADPOOL_BENCH_SIM_SIMULATE_H
#define GRADPOOL_BENCH_SIM_SIMULATE_H

#include "bench/sim/input/workload.h"
#include "bench/sim/setting.h"
#include "bench/sim/trail.h"

struct simulated {
    double hours;
    /* Core-hours. allocated: lanes that are open or used for measurements; fluid: lane time that
     * the jobs would use without loss; dedicated: one core for each worker of each job. */
    double allocated, fluid, dedicated;
    double measuring;                /* part of `allocated` that was used for measurements */
    double peak;                     /* largest number of cores */
    uint64_t placed, refused, brief; /* brief: jobs that ended before they were measured */
    uint64_t moves;
    uint32_t windows;
    uint64_t sampled; /* number of jobs with a window */
    /* part of the sampled jobs whose mean loss over their windows is within the limit */
    double within_limit;
    /* losses of the sampled jobs, measured; loss_predicted: mean of the predictions */
    double loss_mean, loss_p99, loss_worst, loss_predicted;
    /* mean of the loss that the policy uses for placement, without the policy's margin */
    double loss_counted;
    /* mean of the loss that the jobs would have without other jobs */
    double loss_own;
    /* part of the sampled jobs whose prediction is within 2 points of the measured loss */
    double predicted_near;
};

/* Runs the simulation. `trail` may be NULL; otherwise `trail` is all zeros, and the caller frees
 * its contents afterwards. Returns 0, -ENOMEM, or an error of the packer with a text in `error`
 * (TABLE_ERROR_BYTES). */
int simulate(const struct workload *workload, const struct setting *setting, struct trail *trail,
             struct simulated *ret_result, char *error);

#endif
