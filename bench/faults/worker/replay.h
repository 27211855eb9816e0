/* The right state of a tensor with an update rule after each round: parameters and moments of one
 * worker, stepped beside the service in plain C. */
#ifndef GRADPOOL_BENCH_FAULTS_WORKER_REPLAY_H
#define GRADPOOL_BENCH_FAULTS_WORKER_REPLAY_H

#include "svc/reduce/update.h"

#include <stdint.h>

#define REPLAY_WORKERS_MAX 8

struct replay {
    enum update_rule rule;
    uint64_t seed, tensor, elements;
    uint32_t workers;
    uint64_t step;                                   /* since the parameters were set */
    float *parameters, *moments[UPDATE_MOMENTS_MAX]; /* with the values that the lane must have */
    float *gradients[REPLAY_WORKERS_MAX];            /* gradients of each rank */
};

/* -ENOMEM; replay_fini() is due in any case. */
int replay_init(struct replay *replay);
void replay_fini(struct replay *replay);

/* Draws the broadcast parameters of that round into `values`; the update rule begins anew. */
void replay_set(struct replay *replay, uint64_t round, float *values);
/* Returns the hyper-parameters of that round. Each round has different ones, so that a step with
 * those of another round is detected. */
struct update_settings replay_settings(uint64_t round);
/* Makes one step with the gradients of that round (bench/lib/gradient.h). */
void replay_step(struct replay *replay, uint64_t round);
/* Returns the number of elements that differ in any bit. */
uint64_t replay_count_wrong(const struct replay *replay, const float *values);

#endif
