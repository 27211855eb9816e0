/* A workload on a simulated service, from its first job to the end of the clock. PURE. */
#ifndef GRADPOOL_BENCH_SIM_SIMULATE_H
#define GRADPOOL_BENCH_SIM_SIMULATE_H

#include "bench/sim/input/workload.h"
#include "bench/sim/setting.h"
#include "bench/sim/trail.h"

struct simulated {
    double hours;
    /* Core-hours of: lanes that are open or held for measurements; lane time that the jobs would
     * use without loss; one core for each worker of each job. */
    double allocated, fluid, dedicated;
    double measuring;                /* part of `allocated` */
    double peak;                     /* cores */
    uint64_t placed, refused, brief; /* brief: jobs that ended before they were measured */
    uint64_t moves;
    uint32_t windows;
    uint64_t sampled; /* jobs that a window saw */
    /* part of these that are within the limit by the mean over their windows */
    double within_limit;
    double loss_mean, loss_p99, loss_worst, loss_predicted; /* over these jobs */
    double loss_counted; /* mean of the loss that the policy uses for placing, without its margin */
    /* mean of the loss that the jobs would have without other jobs, from their own lanes */
    double loss_own;
    double predicted_near; /* part of these whose prediction is right within 2 points */
};

/* `trail` may be NULL; otherwise all zeros, and the caller frees it. -ENOMEM, or an error of the
 * packer with a text in `error` (TABLE_ERROR_BYTES). */
int simulate(const struct workload *workload, const struct setting *setting, struct trail *trail,
             struct simulated *ret_result, char *error);

#endif
