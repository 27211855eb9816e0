/* A look is one measurement of all aggregators at the same time, shared by all readers. */
#ifndef GRADPOOL_COORDINATOR_AGGREGATOR_LOOKS_H
#define GRADPOOL_COORDINATOR_AGGREGATOR_LOOKS_H

#include "svc/coordinator/loop/loop.h"

struct service;

/* Creates the state. Returns 0 or -ENOMEM. */
int looks_create(struct service *s);
void looks_destroy(struct service *s);
/* looks_ask() requests a look, which begins now or a little later. looks_next() returns the number
 * of that look if it is called before. At the end of the look the hook look_is_over is called,
 * perhaps inside looks_ask(). */
void looks_ask(struct service *s);
uint64_t looks_next(const struct service *s);

#endif
