/* A hostile tenant beside the jobs of `faults`: a separate process with its own key and the
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
    uint64_t kinds;   /* different kinds of attack that the service let begin */
    uint64_t crashes; /* the process ended by itself */
};

/* An attack lasts two to four times `slot_ms`; `rest_ms` without attacks follow. */
struct hostile_pace {
    uint64_t slot_ms, rest_ms;
};

/* Finds an address for `serve --listen` whose port is free and stays free over a restart, because
 * the kernel never assigns it. */
void hostile_find_listen(char *ret_listen);
/* Makes the tenant and starts its process against `listen`, the address of the service. Without
 * gradpool-bench-hostile beside this program (an installation leaves it out) there is no tenant.
 * Returns a negative errno, with a text on standard error. */
int hostile_begin(struct hostile *h, const char *listen, uint64_t seed,
                  const struct hostile_pace *pace);
/* Ends the process and reads its counts. */
void hostile_end(struct hostile *h);

#endif
