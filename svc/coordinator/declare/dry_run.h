/* `gradpool plan` shows where the service would place a job now. */
#ifndef GRADPOOL_COORDINATOR_DECLARE_DRY_RUN_H
#define GRADPOOL_COORDINATOR_DECLARE_DRY_RUN_H

#include "svc/coordinator/peer/peer.h"

void plan_handle(struct peer *p, const envelope *message);

#endif
