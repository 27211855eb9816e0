/* Detects dead hosts of workers. RULES.md: K53. */
#ifndef GRADPOOL_COORDINATOR_SESSION_HOST_SILENCE_H
#define GRADPOOL_COORDINATOR_SESSION_HOST_SILENCE_H

#include "svc/coordinator/peer/peer.h"

int silence_create(struct service *s);
void silence_destroy(struct service *s);
/* Watches the host of a peer from now on, if the peer is a worker on another host. */
void silence_watch(struct peer *p);

#endif
