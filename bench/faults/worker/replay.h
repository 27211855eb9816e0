/* What a tensor with an update rule must be after each round: one worker's own parameters and
 * moments, stepped beside the service with plain C. */
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
    float *parameters, *moments[UPDATE_MOMENTS_MAX]; /* as the lane must have them */
    float *gradients[REPLAY_WORKERS_MAX];            /* of each rank */
};

/* -ENOMEM; replay_fini() is due in any case. */
int replay_init(struct replay *replay);
void replay_fini(struct replay *replay);

/* What is broadcast in that round: into `values`, and the rule begins anew. */
void replay_set(struct replay *replay, uint64_t round, float *values);
/* The hyper-parameters of that round: other ones in each, so that those of another one show. */
struct update_settings replay_settings(uint64_t round);
/* One step, with the gradients of that round (bench/lib/gradient.h). */
void replay_step(struct replay *replay, uint64_t round);
/* Elements that differ in any bit. */
uint64_t replay_count_wrong(const struct replay *replay, const float *values);

#endif
