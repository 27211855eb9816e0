/* Requests of workers to join and to leave. */
#ifndef GRADPOOL_COORDINATOR_MEMBERSHIP_JOIN_H
#define GRADPOOL_COORDINATOR_MEMBERSHIP_JOIN_H

#include "svc/coordinator/peer/peer.h"

void join_handle(struct peer *p, const envelope *message);
void leave_handle(struct peer *p, const envelope *message);

#endif
