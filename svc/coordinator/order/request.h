/* Requests of `gradpool move` and `gradpool drain`. */
#ifndef GRADPOOL_COORDINATOR_ORDER_REQUEST_H
#define GRADPOOL_COORDINATOR_ORDER_REQUEST_H

#include "svc/coordinator/peer/peer.h"

void order_handle_move(struct peer *p, const envelope *message);
void order_handle_drain(struct peer *p, const envelope *message);

#endif
