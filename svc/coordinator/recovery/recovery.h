/* Recovery: new lanes for the pieces of a lost aggregator, and the comparison of a returning
 * aggregator with the store. RULES.md: K4. */
#ifndef GRADPOOL_COORDINATOR_RECOVERY_RECOVERY_H
#define GRADPOOL_COORDINATOR_RECOVERY_RECOVERY_H

#include "svc/coordinator/job/tensor.h"

/* Strands the pieces of the lost aggregator, whose process can no longer write. The pieces are
 * placed on other lanes, unless the service is stopping. */
void recovery_aggregator_lost(struct aggregator *a);
/* Places the stranded pieces of all jobs. Also sends the messages that lanes, replica holders and
 * ranks have not received yet. */
void recovery_place_stranded(struct service *s);
/* Compares the list of pieces that a returning aggregator has sent with the pieces in the store
 * (K9). */
void recovery_reconcile(struct aggregator *a, const WIRE(AggregatorJoin) * join);

#endif
