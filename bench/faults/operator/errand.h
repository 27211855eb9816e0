/* One operator command during `faults`: runs in the background, may fail when a strike hits the
 * service, and must end in any case. */
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
    const char *name; /* prefix of the command's files in the service's folder */
    pid_t pid;        /* 0: no command runs */
    uint64_t began_ns;
    char text[ERRAND_TEXT_BYTES]; /* last line of the last command on standard error */
    uint64_t hangs, crashes;
};

/* `gradpool ARGUMENTS`, which end with NULL; at most ten. Returns at once. */
void errand_begin(struct errand *errand, const char *const *arguments);
/* Returns the exit code of the ended command, once; ERRAND_RUNS while the command runs; -ENOENT
 * without one. A command that takes more than a minute is killed and counts as a hang. `waits`:
 * wait for the end. */
int errand_end(struct errand *errand, bool waits);

#endif
