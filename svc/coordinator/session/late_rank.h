/* Describes a rank for which other ranks wait: the state of the rank, if the coordinator knows the
 * state. RULES.md: K77. */
#ifndef GRADPOOL_COORDINATOR_SESSION_LATE_RANK_H
#define GRADPOOL_COORDINATOR_SESSION_LATE_RANK_H

#include "svc/coordinator/peer/peer.h"

void late_handle(struct peer *p, const envelope *message);

#endif
