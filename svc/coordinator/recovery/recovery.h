/* Recovery: what happens to the pieces of an aggregator that is lost, or that is back. RULES.md:
 * K4. */
#ifndef GRADPOOL_COORDINATOR_RECOVERY_RECOVERY_H
#define GRADPOOL_COORDINATOR_RECOVERY_RECOVERY_H

#include "svc/coordinator/job/tensor.h"

/* Strands the pieces of the lost aggregator, which is fenced, so that it cannot write any more.
 * Places these pieces on other lanes, unless the service is stopping. */
void recovery_aggregator_lost(struct aggregator *a);
/* Places the stranded pieces of all jobs. Sends lanes, replica holders and members the
 * messages that they have not got yet. */
void recovery_place_stranded(struct service *s);
/* Compares the pieces that a returning aggregator has with those in the store (K9). */
void recovery_reconcile(struct aggregator *a, const WIRE(AggregatorJoin) * join);

#endif
