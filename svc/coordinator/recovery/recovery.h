/* Recovery: pieces of an aggregator that is lost, or back. RULES.md: K4. */
#ifndef GRADPOOL_COORDINATOR_RECOVERY_RECOVERY_H
#define GRADPOOL_COORDINATOR_RECOVERY_RECOVERY_H

#include "svc/coordinator/job/tensor.h"

/* Strands the pieces of the lost aggregator, which cannot write any more (it is fenced), and places
 * them anew unless the service is stopping. */
void recovery_aggregator_lost(struct aggregator *a);
/* Places stranded pieces of all jobs, and sends lanes, replica holders and members what they
 * lack. */
void recovery_place_stranded(struct service *s);
/* Compares the pieces that a returning aggregator has with those of the store (K9). */
void recovery_reconcile(struct aggregator *a, const WIRE(AggregatorJoin) * join);

#endif
