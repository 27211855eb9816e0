/* What `faults` has moved while it strikes: tasks of its jobs, from lane to lane. */
#ifndef GRADPOOL_BENCH_FAULTS_OPERATOR_ROAM_H
#define GRADPOOL_BENCH_FAULTS_OPERATOR_ROAM_H

#include "bench/lib/own_service.h"

#include <stdint.h>
#include <sys/types.h>

struct roam {
    const struct service *service;
    pid_t pid; /* of the order that is under way; 0: none */
    uint64_t asked, done, crashes;
};

/* Orders a move, of the job or one task of it, as `chance` says, and returns at once; does nothing
 * while the last order is under way, or where nobody answers. */
void roam_begin(struct roam *roam, const char *job, uint32_t chance);
/* Waits for what is under way. */
void roam_end(struct roam *roam);

#endif
