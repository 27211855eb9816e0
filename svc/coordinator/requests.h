/* The messages of peers and their handlers. */
#ifndef GRADPOOL_COORDINATOR_REQUESTS_H
#define GRADPOOL_COORDINATOR_REQUESTS_H

#include "svc/coordinator/peer/peer.h"

/* Handles a message of a peer that is open, or refuses it; `message` is the caller's. */
void requests_handle(struct peer *p, const envelope *message);

#endif
