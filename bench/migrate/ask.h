/* Commands of an operator, as an operator types them. */
#ifndef GRADPOOL_BENCH_MIGRATE_ASK_H
#define GRADPOOL_BENCH_MIGRATE_ASK_H

#include "bench/lib/own_service.h"

#include <stdbool.h>

/* Runs `gradpool a b c`; b and c may be NULL. -EIO, with a text on standard error, if the command
 * fails. */
int ask_service(const struct service *service, const char *a, const char *b, const char *c);
int ask_drain(const struct service *service, uint32_t lane, bool undoes);
/* Returns the lanes of the service's two aggregators, one each. Waits until both have joined. */
int ask_lanes(const struct service *service, uint32_t ret_lanes[2]);

#endif
