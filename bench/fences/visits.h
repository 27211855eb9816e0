/* Measures requests of other users to the coordinator during a load: a new job, `status`, the
 * removal of a tenant. */
#ifndef GRADPOOL_BENCH_FENCES_VISITS_H
#define GRADPOOL_BENCH_FENCES_VISITS_H

#include "bench/lib/own_service.h"

#include <stdint.h>

enum visit {
    VISIT_JOIN_TCP,
    VISIT_JOIN_UNIX,
    VISIT_STATUS_TCP,
    VISIT_STATUS_UNIX,
    VISIT_ADD_UNIX,
    VISIT_REVOKE_UNIX,
    VISITS
};

struct visitor {
    const struct service *service;
    const char *listen;                    /* the TCP endpoint */
    const char *tenant_key, *operator_key; /* paths of files with keys for TCP */
};

struct visited {
    double longest_s[VISITS];
    uint32_t failed;
};

const char *visit_name(enum visit visit);
/* Makes `count` visits of each kind. Returns a negative errno if no visit was possible. Refused
 * visits are counted, with a text on standard error. */
int visits_make(const struct visitor *visitor, uint32_t count, struct visited *ret_visited);

#endif
