/* `gradpool explain` shows why each task of a job is on its lane. */
#ifndef GRADPOOL_COORDINATOR_VIEW_EXPLAIN_H
#define GRADPOOL_COORDINATOR_VIEW_EXPLAIN_H

#include "svc/coordinator/peer/peer.h"

void explain_handle(struct peer *p, const envelope *message);

#endif
