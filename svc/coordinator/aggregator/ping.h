/* Pings, which show whether aggregators still answer. RULES.md: K14. */
#ifndef GRADPOOL_COORDINATOR_AGGREGATOR_PING_H
#define GRADPOOL_COORDINATOR_AGGREGATOR_PING_H

#include "svc/coordinator/aggregator/aggregator.h"

/* Creates the state, before the aggregators are restored. Returns 0 or -ENOMEM. */
int liveness_create(struct service *s);
void liveness_destroy(struct service *s);
/* Starts to ping the aggregators. */
void liveness_start(struct service *s);
/* Shortens the period between pings, if this aggregator, which is up now, needs a shorter one. */
void liveness_joined(struct aggregator *a);
/* Ends the silence of the aggregator, because a message of it has arrived. */
void liveness_heard(struct aggregator *a);
/* Returns how long the aggregator has been silent; 0: not silent. */
uint64_t liveness_silent_ns(const struct aggregator *a);

#endif
