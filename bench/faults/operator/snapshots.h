/* An operator who orders snapshots of jobs during `faults`. A file must be complete, must contain
 * states of one iteration, and must be right to the last bit. If a snapshot fails, there must be no
 * file, and the error must have a reason. */
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

/* Checks the last snapshot, then orders the next one of the job, which has update rules. No effect
 * while a command runs. */
void snapshots_step(struct snapshots *snapshots, const char *job, uint64_t seed, uint32_t workers);
/* Waits for the running command. */
void snapshots_end(struct snapshots *snapshots);

#endif
