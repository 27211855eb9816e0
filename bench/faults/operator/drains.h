/* An operator who drains aggregators while `faults` strikes, and gives them back. */
#ifndef GRADPOOL_BENCH_FAULTS_OPERATOR_DRAINS_H
#define GRADPOOL_BENCH_FAULTS_OPERATOR_DRAINS_H

#include "bench/faults/operator/errand.h"

struct drains {
    struct errand errand;
    uint32_t aggregator; /* that is drained, or was to be; 0: none */
    bool undoes;
    uint64_t done, undone, refused; /* of these the last: of both */
};

/* Whatever is due: drains one of the aggregators, as `chance` says, or gives back the one that is
 * drained. Does nothing while that is under way. */
void drains_step(struct drains *drains, uint32_t chance);
/* Waits for what is under way. */
void drains_end(struct drains *drains);

#endif
