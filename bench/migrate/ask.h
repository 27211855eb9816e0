/* Commands of an operator. */
#ifndef GRADPOOL_BENCH_MIGRATE_ASK_H
#define GRADPOOL_BENCH_MIGRATE_ASK_H

#include "bench/lib/own_service.h"

#include <stdbool.h>

/* Runs `gradpool a b c`; b and c may be NULL. -EIO, with a text on standard error: the command
 * failed. */
int ask_service(const struct service *service, const char *a, const char *b, const char *c);
int ask_drain(const struct service *service, uint32_t lane, bool undoes);
/* Returns one lane of each of the service's two aggregators. Waits until both have joined. */
int ask_lanes(const struct service *service, uint32_t ret_lanes[2]);

#endif
