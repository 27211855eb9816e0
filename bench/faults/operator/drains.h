/* An operator that drains aggregators and undoes the drains during `faults`. */
#ifndef GRADPOOL_BENCH_FAULTS_OPERATOR_DRAINS_H
#define GRADPOOL_BENCH_FAULTS_OPERATOR_DRAINS_H

#include "bench/faults/operator/errand.h"

struct drains {
    struct errand errand;
    uint32_t aggregator; /* aggregator of the last drain; 0: none */
    bool undoes;
    /* numbers of drains, of undone drains, and of failed commands of both kinds */
    uint64_t done, undone, refused;
};

/* Begins the next command: drains the aggregator selected by `chance`, or undoes the drain. No
 * effect while a command runs. */
void drains_step(struct drains *drains, uint32_t chance);
/* Waits for the running command. */
void drains_end(struct drains *drains);

#endif
