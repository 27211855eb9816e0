/* Looks at what the aggregators have counted, for all who ask to be shown it. */
#ifndef GRADPOOL_COORDINATOR_AGGREGATOR_LOOKS_H
#define GRADPOOL_COORDINATOR_AGGREGATOR_LOOKS_H

#include "svc/coordinator/loop/loop.h"

struct service;

/* -ENOMEM. */
int looks_create(struct service *s);
void looks_destroy(struct service *s);
/* The number of the next look, which begins now or later; hook look_is_over follows, perhaps at
 * once. */
void looks_ask(struct service *s);
uint64_t looks_next(const struct service *s);

#endif
