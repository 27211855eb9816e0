/* Problems of the virtual bench: parameters, gradients of batches, losses. All problems use 32-bit
 * floats and plain SGD. */
#ifndef GRADPOOL_BENCH_BACKUP_TRAINING_PROBLEM_H
#define GRADPOOL_BENCH_BACKUP_TRAINING_PROBLEM_H

#include "bench/backup/grid/grid.h"
#include "bench/backup/training/digits.h"

#define PROBLEM_FLOATS_MAX 2048

struct problem {
    const struct grid_problem *setting;
    const struct digits *digits;
    size_t floats;    /* number of floats in the parameters and in a gradient */
    uint64_t batches; /* state of the random stream of batches */
    float parameters[PROBLEM_FLOATS_MAX];
    float curvature[PROBLEM_FLOATS_MAX]; /* curvature of a quadratic */
};

/* Starts a problem. `digits` may be NULL for a quadratic. */
void problem_init(struct problem *problem, const struct grid_problem *setting, uint64_t seed,
                  const struct digits *digits);
/* Draws a batch and computes its gradient at the present parameters. Returns the loss of the
 * batch. */
double problem_gradient(struct problem *problem, float *ret_gradient);
/* Returns the loss over the whole problem. */
double problem_loss(const struct problem *problem);
double problem_rate(const struct problem *problem, uint32_t round);
void problem_step(struct problem *problem, const float *mean, float rate);

#endif
