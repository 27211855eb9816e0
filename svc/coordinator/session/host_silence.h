/* Whether the hosts of workers are still there. README: K53. */
#ifndef GRADPOOL_COORDINATOR_SESSION_HOST_SILENCE_H
#define GRADPOOL_COORDINATOR_SESSION_HOST_SILENCE_H

#include "svc/coordinator/peer/peer.h"

int silence_create(struct service *s);
void silence_destroy(struct service *s);
/* Looks from now on whether the host of a peer that is open answers, if that is a worker's. */
void silence_watch(struct peer *p);

#endif
