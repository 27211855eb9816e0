/* A look is one measurement of all aggregators at the same time. Several readers may use the
 * results of one look. */
#ifndef GRADPOOL_COORDINATOR_AGGREGATOR_LOOKS_H
#define GRADPOOL_COORDINATOR_AGGREGATOR_LOOKS_H

#include "svc/coordinator/loop/loop.h"

struct service;

int looks_create(struct service *s);
void looks_destroy(struct service *s);
/* looks_ask() requests a look, which begins at once or after a short pause. The hook look_is_over
 * is called at the end of the look, possibly inside looks_ask(). looks_next() returns the number of
 * the look that the next looks_ask() will request. */
void looks_ask(struct service *s);
uint64_t looks_next(const struct service *s);

#endif
