/* Pings: whether aggregators still answer. RULES.md: K14. */
#ifndef GRADPOOL_COORDINATOR_AGGREGATOR_PING_H
#define GRADPOOL_COORDINATOR_AGGREGATOR_PING_H

#include "svc/coordinator/aggregator/aggregator.h"

/* Before the state is restored. -ENOMEM. */
int liveness_create(struct service *s);
void liveness_destroy(struct service *s);
/* Begins to ping the aggregators. */
void liveness_start(struct service *s);
/* Shortens the period if the aggregator, now up, needs a shorter one. */
void liveness_joined(struct aggregator *a);
/* Resets the silence: a message of the aggregator has arrived. */
void liveness_heard(struct aggregator *a);
/* Silence of the aggregator; 0: none. */
uint64_t liveness_silent_ns(const struct aggregator *a);

#endif
