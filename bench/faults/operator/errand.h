/* A command of an operator during `faults`. The command runs in the background, may fail when a
 * strike hits the service, and must always end. */
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
    const char *name; /* prefix of the names of the command's files in the service's folder */
    pid_t pid;        /* process of the running command; 0: none */
    uint64_t began_ns;
    char text[ERRAND_TEXT_BYTES]; /* last line of the last command's standard error */
    uint64_t hangs, crashes;
};

/* Runs `gradpool ARGUMENTS` and returns at once. At most ten arguments, then NULL. */
void errand_begin(struct errand *errand, const char *const *arguments);
/* Returns the exit code of an ended command, once; ERRAND_RUNS while a command runs; -ENOENT if no
 * command was begun. A command that runs for more than a minute is killed and counts as a hang.
 * `waits`: whether to wait for the end. */
int errand_end(struct errand *errand, bool waits);

#endif
