/* Looks: figures of all aggregators at once, shared by all readers. */
#ifndef GRADPOOL_COORDINATOR_AGGREGATOR_LOOKS_H
#define GRADPOOL_COORDINATOR_AGGREGATOR_LOOKS_H

#include "svc/coordinator/loop/loop.h"

struct service;

/* -ENOMEM. */
int looks_create(struct service *s);
void looks_destroy(struct service *s);
/* looks_ask() requests a look, which begins now or later; looks_next() is its number, if called
 * before. The hook look_is_over follows, perhaps at once. */
void looks_ask(struct service *s);
uint64_t looks_next(const struct service *s);

#endif
