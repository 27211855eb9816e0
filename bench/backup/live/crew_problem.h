/* A noisy quadratic as large as a small model: its gradients are real, cheap to compute, and equal
 * on every machine. The spectrum is that of `quadratic` of the virtual bench. */
#ifndef GRADPOOL_BENCH_BACKUP_LIVE_CREW_PROBLEM_H
#define GRADPOOL_BENCH_BACKUP_LIVE_CREW_PROBLEM_H

#include <stddef.h>
#include <stdint.h>

#define CREW_TENSORS 4
#define CREW_TENSOR_FLOATS 16384
#define CREW_FLOATS (CREW_TENSORS * CREW_TENSOR_FLOATS) /* number of parameters (256 KiB) */
#define CREW_RATE 0.3f

struct crew_problem {
    float curvature[CREW_FLOATS];
    uint64_t batches; /* state of the sequence of random numbers of this worker */
};

void crew_problem_init(struct crew_problem *problem, uint64_t seed, uint32_t rank);
void crew_problem_start(float *ret_parameters);
/* Computes the gradient of a new batch. Returns the loss of the batch. */
double crew_problem_gradient(struct crew_problem *problem, const float *parameters,
                             float *ret_gradient);
double crew_problem_loss(const struct crew_problem *problem, const float *parameters);

#endif
