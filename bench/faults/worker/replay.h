/* The expected state of a tensor with an update rule after each round: one worker computes
 * parameters and moments in plain C, without the service. */
#ifndef GRADPOOL_BENCH_FAULTS_WORKER_REPLAY_H
#define GRADPOOL_BENCH_FAULTS_WORKER_REPLAY_H

#include "svc/reduce/update.h"

#include <stdint.h>

#define REPLAY_WORKERS_MAX 8

struct replay {
    enum update_rule rule;
    uint64_t seed, tensor, elements;
    uint32_t workers;
    /* number of steps since the parameters were set */
    uint64_t step;
    float *parameters, *moments[UPDATE_MOMENTS_MAX]; /* values that the lane must have computed */
    float *gradients[REPLAY_WORKERS_MAX];            /* gradients of each rank */
};

/* Allocates the arrays. Returns 0 or -ENOMEM. The caller calls replay_fini() also after an
 * error. */
int replay_init(struct replay *replay);
void replay_fini(struct replay *replay);

/* Computes the broadcast parameters of that round in `values`, and resets the moments. */
void replay_set(struct replay *replay, uint64_t round, float *values);
/* Returns the settings of that round. Each round has other settings, so a step with the settings of
 * another round is detected. */
struct update_settings replay_settings(uint64_t round);
/* Does one step with the gradients of that round (bench/lib/gradient.h). */
void replay_step(struct replay *replay, uint64_t round);
/* Returns the number of elements that differ in any bit. */
uint64_t replay_count_wrong(const struct replay *replay, const float *values);

#endif
