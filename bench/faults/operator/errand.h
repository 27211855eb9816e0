/* One command of an operator while `faults` strikes: runs beside everything else, fails when who
 * carries it out was struck, and must end in any case. */
#ifndef GRADPOOL_BENCH_FAULTS_OPERATOR_ERRAND_H
#define GRADPOOL_BENCH_FAULTS_OPERATOR_ERRAND_H

#include "bench/lib/own_service.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define ERRAND_TEXT_BYTES 512
#define ERRAND_RUNS (-EINPROGRESS)

struct errand {
    const struct service *service;
    const char *name; /* of its files in the service's folder */
    pid_t pid;        /* 0: none is under way */
    uint64_t began_ns;
    char text[ERRAND_TEXT_BYTES]; /* what the last one has said on standard error */
    uint64_t hangs, crashes;
};

/* `gradpool ARGUMENTS`, which end with NULL; at most ten. Returns at once. */
void errand_begin(struct errand *errand, const char *const *arguments);
/* Its exit code, once; ERRAND_RUNS: it is under way; -ENOENT: none is. One that takes more than a
 * minute is killed, as a hang. `waits`: for its end. */
int errand_end(struct errand *errand, bool waits);

#endif
