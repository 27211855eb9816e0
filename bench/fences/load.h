/* The load beside the victim, and its control: one process at a lower priority, so that the victim
 * has the same share of the cores beside both. */
#ifndef GRADPOOL_BENCH_FENCES_LOAD_H
#define GRADPOOL_BENCH_FENCES_LOAD_H

#include "bench/lib/own_service.h"

#include <stdint.h>

#define LOADS 11
#define LOAD_NICER 10 /* than this process */

struct load {
    const char *name; /* an attack of gradpool-bench-hostile */
    /* LOAD_BUSY, or another order of gradpool-bench-hostile; NULL: no control. */
    const char *control;
};

#define LOAD_BUSY "busy" /* a loop, as the process of the attack would be */

extern const struct load loads[LOADS];

struct running_load {
    const struct service *service;
    pid_t pid;       /* 0: nothing runs */
    char tenant[32]; /* "": no tenant */
    char output[PATH_MAX + 64];
};

/* Returns once the load runs. `listen`: TCP endpoint of the service; `what`: NULL is no load. A
 * hostile process has a tenant of its own. Returns a negative errno, with a text on standard
 * error. */
int load_begin(struct running_load *running, const struct service *service, const char *listen,
               const char *what);
/* Ends a load, its tenant and the tenant's jobs, and waits until the service is idle; allowed
 * without a load. `ret_done`: requests, records and connections of the load. */
int load_end(struct running_load *running, uint64_t *ret_done);

#endif
