/* Describes late ranks: what the coordinator knows about a rank for which others wait. RULES.md:
 * K77. */
#ifndef GRADPOOL_COORDINATOR_SESSION_LATE_RANK_H
#define GRADPOOL_COORDINATOR_SESSION_LATE_RANK_H

#include "svc/coordinator/peer/peer.h"

void late_handle(struct peer *p, const envelope *message);

#endif
