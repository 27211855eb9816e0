/* The messages of peers and their handlers. */
#ifndef GRADPOOL_COORDINATOR_REQUESTS_H
#define GRADPOOL_COORDINATOR_REQUESTS_H

#include "svc/coordinator/peer/peer.h"

/* Calls the handler of a message. Refuses a message for which there is no handler. The caller still
 * owns `message`. */
void requests_handle(struct peer *p, const envelope *message);

#endif
