/* One training run on a virtual clock: the packer's rule closes its rounds, the gradients are real,
 * messages and sums take no time. */
#ifndef GRADPOOL_BENCH_BACKUP_TRAINING_VIRTUAL_H
#define GRADPOOL_BENCH_BACKUP_TRAINING_VIRTUAL_H

#include "bench/backup/grid/grid.h"
#include "bench/backup/training/durations.h"
#include "bench/backup/training/problem.h"

#define VIRTUAL_SECOND_MOST 6 /* gradients of a rank in one round, with second gradients */

struct virtual_setting {
    const struct grid *grid;
    const struct grid_problem *problem;
    const struct grid_times *times;
    const struct grid_rule *rule;
    enum straggler straggler;
    uint64_t seed;
    uint32_t absence; /* as in backup_options */
    const struct digits *digits;
    const struct jitter *jitter;
};

struct virtual_result {
    double reached[GRID_TARGETS]; /* times; -1: not reached */
    uint32_t rounds;
    double k_mean;    /* gradients a round */
    double dropped;   /* share of ranks outside a round's set */
    uint32_t absence; /* most rounds in a row without a rank */
    double decide_ns; /* mean time of a decision, by the real clock */
    double loss;      /* at the end */
};

/* -ENOMEM; -EINVAL: the rule does not fit the number of workers. */
int virtual_run(const struct virtual_setting *setting, struct virtual_result *ret_result);

#endif
