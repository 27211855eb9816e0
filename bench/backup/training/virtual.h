/* One training run on a virtual clock. The packer's rule closes its rounds. The gradients are real;
 * messages and sums take no time. */
#ifndef GRADPOOL_BENCH_BACKUP_TRAINING_VIRTUAL_H
#define GRADPOOL_BENCH_BACKUP_TRAINING_VIRTUAL_H

#include "bench/backup/grid/grid.h"
#include "bench/backup/training/durations.h"
#include "bench/backup/training/problem.h"

/* maximum number of gradients of a rank in one round, with second gradients */
#define VIRTUAL_SECOND_MOST 6

struct virtual_setting {
    const struct grid *grid;
    const struct grid_problem *problem;
    const struct grid_times *times;
    const struct grid_rule *rule;
    enum straggler straggler;
    uint64_t seed;
    uint32_t absence; /* value of backup_options.absence */
    const struct digits *digits;
    const struct jitter *jitter;
};

struct virtual_result {
    double reached[GRID_TARGETS]; /* time of each target; -1: not reached */
    uint32_t rounds;
    double k_mean;  /* mean number of gradients in a round */
    double dropped; /* mean fraction of the ranks without a gradient in a round */
    /* largest number of consecutive rounds in which the same rank has no gradient */
    uint32_t absence;
    double decide_ns; /* mean time of a decision on the real clock */
    double loss;      /* loss at the end of the run */
};

/* Runs the training to its end. -ENOMEM; -EINVAL: the rule does not fit the number of workers. */
int virtual_run(const struct virtual_setting *setting, struct virtual_result *ret_result);

#endif
