/* The messages of peers and their handlers. */
#ifndef GRADPOOL_COORDINATOR_REQUESTS_H
#define GRADPOOL_COORDINATOR_REQUESTS_H

#include "svc/coordinator/peer/peer.h"

/* Passes a message of an open peer to its handler, or refuses the message. `message` still belongs
 * to the caller. */
void requests_handle(struct peer *p, const envelope *message);

#endif
