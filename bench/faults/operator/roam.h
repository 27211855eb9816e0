/* An operator who moves tasks of jobs from lane to lane during `faults`. */
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

/* Begins a move of the job or of one task, selected by `chance`, and returns at once. No effect
 * while a command runs, or if the service does not answer. */
void roam_begin(struct roam *roam, const char *job, uint32_t chance);
/* Waits for the running command. */
void roam_end(struct roam *roam);

#endif
