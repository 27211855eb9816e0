/* A look at the cluster at one moment, chunk by chunk: what each placed job loses there. */
#ifndef GRADPOOL_BENCH_SIM_LANES_LOSS_WINDOW_H
#define GRADPOOL_BENCH_SIM_LANES_LOSS_WINDOW_H

#include "bench/sim/lanes/cluster.h"

/* Of one job, summed over the windows that saw it. */
struct window_sums {
    uint32_t windows;
    double loss;      /* measured: against as many lanes as workers, nobody else on them */
    double own;       /* part of it: the same lanes with nobody else on them */
    double predicted; /* packer_predict() */
    double counted;   /* with which the policy places, without its margin */
};

/* `starts_ns` and `sums` by job. `number` seeds the window. -ENOMEM. */
int window_look(const struct cluster *cluster, const uint64_t *starts_ns, uint64_t now_ns,
                uint32_t number, struct window_sums *sums);

#endif
