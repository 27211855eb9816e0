/* An operator that moves tasks of jobs from lane to lane during `faults`. */
#ifndef GRADPOOL_BENCH_FAULTS_OPERATOR_ROAM_H
#define GRADPOOL_BENCH_FAULTS_OPERATOR_ROAM_H

#include "bench/lib/own_service.h"

#include <stdint.h>
#include <sys/types.h>

struct roam {
    const struct service *service;
    pid_t pid; /* process of the running command; 0: none */
    uint64_t asked, done, crashes;
};

/* Begins a move of the job or of one task, as `chance` selects, and returns at once. Does nothing
 * while a command runs or without an answer of the service. */
void roam_begin(struct roam *roam, const char *job, uint32_t chance);
/* Waits for the running command. */
void roam_end(struct roam *roam);

#endif
