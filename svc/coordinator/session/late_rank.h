/* Describes a rank for which other ranks wait: its state, as far as the coordinator knows.
 * RULES.md: K77. */
#ifndef GRADPOOL_COORDINATOR_SESSION_LATE_RANK_H
#define GRADPOOL_COORDINATOR_SESSION_LATE_RANK_H

#include "svc/coordinator/peer/peer.h"

void late_handle(struct peer *p, const envelope *message);

#endif
