/* Whether aggregators still answer. README: K14. */
#ifndef GRADPOOL_COORDINATOR_AGGREGATOR_PING_H
#define GRADPOOL_COORDINATOR_AGGREGATOR_PING_H

#include "svc/coordinator/aggregator/aggregator.h"

/* Before anything is restored. -ENOMEM. */
int liveness_create(struct service *s);
void liveness_destroy(struct service *s);
/* Pings the aggregators from now on. */
void liveness_start(struct service *s);
/* `a` is up: from now on periods are as short as it needs them. */
void liveness_joined(struct aggregator *a);
/* Something came from it. */
void liveness_heard(struct aggregator *a);
/* How long it has been silent; 0: it is not. */
uint64_t liveness_silent_ns(const struct aggregator *a);

#endif
