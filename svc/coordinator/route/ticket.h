/* Tickets: secrets with which workers connect to lanes. RULES.md: K56. */
#ifndef GRADPOOL_COORDINATOR_ROUTE_TICKET_H
#define GRADPOOL_COORDINATOR_ROUTE_TICKET_H

#include "svc/coordinator/peer/peer.h"

void ticket_handle(struct peer *p, const envelope *message);
/* Handles a ticket request that was stored for later. */
void ticket_answer(struct peer *p, const envelope *message);

#endif
