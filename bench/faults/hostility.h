/* Runs a hostile tenant beside the jobs of `faults`: a separate process with its own key and the
 * quotas that every tenant has (gradpool-bench-hostile). */
#ifndef GRADPOOL_BENCH_FAULTS_HOSTILITY_H
#define GRADPOOL_BENCH_FAULTS_HOSTILITY_H

#include "bench/lib/own_service.h"

#include <stdint.h>

#define HOSTILE_LISTEN_BYTES 64

struct hostile {
    const struct service *service;
    pid_t pid;        /* process of the hostile tenant; 0: not running */
    uint64_t attacks; /* number of attacks */
    uint64_t kinds;   /* number of kinds of attack that the service did not refuse at once */
    uint64_t crashes; /* number of unexpected ends of the process */
};

/* An attack lasts for two to four times `slot_ms`. A pause of `rest_ms` follows. */
struct hostile_pace {
    uint64_t slot_ms, rest_ms;
};

/* Finds an address for `serve --listen`. The kernel never assigns its port, so the port is still
 * free after a restart of the service. */
void hostile_find_listen(char *ret_listen);
/* Creates the tenant and starts its process. `listen`: address of the service. If the program
 * gradpool-bench-hostile is missing, as in an installation, the call starts nothing. Returns a
 * negative errno, with a text on standard error. */
int hostile_begin(struct hostile *h, const char *listen, uint64_t seed,
                  const struct hostile_pace *pace);
/* Ends the process and reads its counts. */
void hostile_end(struct hostile *h);

#endif
