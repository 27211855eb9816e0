/* A hostile tenant beside the jobs of `faults`: a process of its own with a key of its own and the
 * quotas that every tenant has (gradpool-bench-hostile). */
#ifndef GRADPOOL_BENCH_FAULTS_HOSTILITY_H
#define GRADPOOL_BENCH_FAULTS_HOSTILITY_H

#include "bench/lib/own_service.h"

#include <stdint.h>

#define HOSTILE_LISTEN_BYTES 64

struct hostile {
    const struct service *service;
    pid_t pid;        /* 0: not running */
    uint64_t attacks; /* attacks that were made */
    uint64_t kinds;   /* of these, different ones that the service let begin */
    uint64_t crashes; /* the process ended by itself */
};

/* An attack lasts for two to four times `slot_ms`; `rest_ms` follow it, in which jobs have the
 * cores to themselves. */
struct hostile_pace {
    uint64_t slot_ms, rest_ms;
};

/* An address for `serve --listen` whose port is free now, stays so over a restart, and is none that
 * the kernel gives anybody. */
void hostile_find_listen(char *ret_listen);
/* Makes the tenant and starts its process against `listen`, which is that of the service. Where
 * gradpool-bench-hostile is not beside this program, as it is not installed, there is no tenant.
 * Negative errno, with a text on standard error. */
int hostile_begin(struct hostile *h, const char *listen, uint64_t seed,
                  const struct hostile_pace *pace);
/* Ends it, and counts. */
void hostile_end(struct hostile *h);

#endif
