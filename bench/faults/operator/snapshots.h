/* An operator who takes snapshots of jobs while `faults` strikes: each file is whole, of one
 * iteration, and holds the right bits, or there is none and a sentence says why. */
#ifndef GRADPOOL_BENCH_FAULTS_OPERATOR_SNAPSHOTS_H
#define GRADPOOL_BENCH_FAULTS_OPERATOR_SNAPSHOTS_H

#include "bench/faults/operator/errand.h"

struct snapshots {
    struct errand errand;
    char job[32], path[PATH_MAX + 32];
    uint64_t seed; /* of that job */
    uint32_t workers;
    uint64_t done, refused, unnamed, elements_checked, wrong;
};

/* Orders one of that job, which trains update rules; checks what came of the last. Does nothing
 * while that is under way. */
void snapshots_step(struct snapshots *snapshots, const char *job, uint64_t seed, uint32_t workers);
/* Waits for what is under way. */
void snapshots_end(struct snapshots *snapshots);

#endif
