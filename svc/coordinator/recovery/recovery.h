/* Pieces when an aggregator is lost or comes back. README: K4. */
#ifndef GRADPOOL_COORDINATOR_RECOVERY_RECOVERY_H
#define GRADPOOL_COORDINATOR_RECOVERY_RECOVERY_H

#include "svc/coordinator/job/tensor.h"

/* The aggregator cannot write any more (fenced): its pieces are stranded, and placed anew
 * unless the service is stopping. */
void recovery_aggregator_lost(struct aggregator *a);
/* Places what is stranded, and tells lanes what they do not know yet, of all jobs. */
void recovery_place_stranded(struct service *s);
/* What a rejoining aggregator holds against what it should hold. */
void recovery_reconcile(struct aggregator *a, const WIRE(AggregatorJoin) * join);

#endif
