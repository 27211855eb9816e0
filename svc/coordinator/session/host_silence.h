/* Detects that a worker's host is down. RULES.md: K53. */
#ifndef GRADPOOL_COORDINATOR_SESSION_HOST_SILENCE_H
#define GRADPOOL_COORDINATOR_SESSION_HOST_SILENCE_H

#include "svc/coordinator/peer/peer.h"

int silence_create(struct service *s);
void silence_destroy(struct service *s);
/* Starts to check the host of a peer that is a worker on another host. */
void silence_watch(struct peer *p);

#endif
