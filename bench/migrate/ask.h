/* Commands of an operator, as an operator types them. */
#ifndef GRADPOOL_BENCH_MIGRATE_ASK_H
#define GRADPOOL_BENCH_MIGRATE_ASK_H

#include "bench/lib/own_service.h"

#include <stdbool.h>

/* `gradpool a b c`; b and c may be NULL. -EIO, with a text on standard error: it failed. */
int ask_service(const struct service *service, const char *a, const char *b, const char *c);
int ask_drain(const struct service *service, uint32_t lane, bool undoes);
/* The first lanes of the service's two aggregators, which have one each. Waits until both are
 * there. */
int ask_lanes(const struct service *service, uint32_t ret_lanes[2]);

#endif
