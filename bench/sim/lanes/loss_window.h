/* Simulates the cluster chunk by chunk at one moment, and measures the loss of each placed job. */
#ifndef GRADPOOL_BENCH_SIM_LANES_LOSS_WINDOW_H
#define GRADPOOL_BENCH_SIM_LANES_LOSS_WINDOW_H

#include "bench/sim/lanes/cluster.h"

/* Figures of one job, summed over the windows in which the job is placed. */
struct window_sums {
    uint32_t windows;
    /* measured loss, compared with a run on as many lanes as workers without other jobs */
    double loss;
    double own;       /* the part of `loss` that remains on the same lanes without other jobs */
    double predicted; /* result of packer_predict() */
    double counted;   /* loss by the rule of the policy, without margin */
};

/* Simulates one window, and adds the losses of the placed jobs to `sums`. `starts_ns` and `sums`
 * have one entry for each job. `number`: seed of the window. Returns 0 or -ENOMEM. */
int window_look(const struct cluster *cluster, const uint64_t *starts_ns, uint64_t now_ns,
                uint32_t number, struct window_sums *sums);

#endif
