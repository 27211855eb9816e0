/* Runs the load beside the victim, or the control of this load. Each is one process with a lower
 * priority, so that the victim has the same part of the cores in both cases. */
#ifndef GRADPOOL_BENCH_FENCES_LOAD_H
#define GRADPOOL_BENCH_FENCES_LOAD_H

#include "bench/lib/own_service.h"

#include <stdint.h>

#define LOADS 11
#define LOAD_NICER 10 /* difference between the nice values of the load and of this process */

struct load {
    const char *name; /* name of the load: an attack of gradpool-bench-hostile */
    /* name of the control: LOAD_BUSY, or another attack of gradpool-bench-hostile; NULL: no
     * control */
    const char *control;
};

#define LOAD_BUSY "busy" /* a loop that uses as much CPU as the process of the attack */

extern const struct load loads[LOADS];

struct running_load {
    const struct service *service;
    pid_t pid;       /* process of the load; 0: none */
    char tenant[32]; /* tenant of the load; "": none */
    char output[PATH_MAX + 64];
};

/* Starts a load, and returns when the load runs. `listen`: TCP endpoint of the service; `what`:
 * name of the load; NULL: no load. A hostile process has its own tenant. Returns a negative errno,
 * with a text on standard error. */
int load_begin(struct running_load *running, const struct service *service, const char *listen,
               const char *what);
/* Ends a load, its tenant and the tenant's jobs, and waits until the service is idle. May be called
 * without a load. `ret_done`: number of requests, records and connections of the load. */
int load_end(struct running_load *running, uint64_t *ret_done);

#endif
