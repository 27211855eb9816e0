/* Undeclares of tensors. */
#ifndef GRADPOOL_COORDINATOR_DECLARE_UNDECLARE_H
#define GRADPOOL_COORDINATOR_DECLARE_UNDECLARE_H

#include "svc/coordinator/peer/peer.h"

void undeclare_handle(struct peer *p, const envelope *message);

#endif
