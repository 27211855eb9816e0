/* An operator that takes snapshots of jobs during `faults`. Either a file is complete, of one
 * iteration, and bit by bit right, or there is no file, and a sentence has the reason. */
#ifndef GRADPOOL_BENCH_FAULTS_OPERATOR_SNAPSHOTS_H
#define GRADPOOL_BENCH_FAULTS_OPERATOR_SNAPSHOTS_H

#include "bench/faults/operator/errand.h"

struct snapshots {
    struct errand errand;
    char job[32], path[PATH_MAX + 32];
    uint64_t seed; /* seed of `job` */
    uint32_t workers;
    uint64_t done, refused, unnamed, elements_checked, wrong;
};

/* Orders a snapshot of the job, which trains with update rules, after checking the snapshot before.
 * Does nothing while a command runs. */
void snapshots_step(struct snapshots *snapshots, const char *job, uint64_t seed, uint32_t workers);
/* Waits for the running command. */
void snapshots_end(struct snapshots *snapshots);

#endif
