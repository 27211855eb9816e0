/* Pings, which detect aggregators that no longer answer. RULES.md: K14. */
#ifndef GRADPOOL_COORDINATOR_AGGREGATOR_PING_H
#define GRADPOOL_COORDINATOR_AGGREGATOR_PING_H

#include "svc/coordinator/aggregator/aggregator.h"

/* Creates the state of the pings. Called before the aggregators are restored. Returns 0 or
 * -ENOMEM. */
int liveness_create(struct service *s);
void liveness_destroy(struct service *s);
void liveness_start(struct service *s);
/* Shortens the ping period if the aggregator, which has just joined, requires a shorter period. */
void liveness_joined(struct aggregator *a);
/* Resets the silence of the aggregator, because a message from it has arrived. */
void liveness_heard(struct aggregator *a);
/* Returns how long the aggregator has been silent; 0: not silent. */
uint64_t liveness_silent_ns(const struct aggregator *a);

#endif
