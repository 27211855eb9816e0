/* Requests of aggregators to join, to join again, and to leave. */
#ifndef GRADPOOL_COORDINATOR_FLEET_JOIN_H
#define GRADPOOL_COORDINATOR_FLEET_JOIN_H

#include "svc/coordinator/peer/peer.h"

void aggregator_handle_join(struct peer *p, const envelope *message);
void aggregator_handle_leave(struct peer *p, const envelope *message);

#endif
