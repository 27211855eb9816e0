/* Replica holders of pieces: their offers, changes and losses (A31, A49). */
#ifndef GRADPOOL_LANE_ROUND_HOLDER_H
#define GRADPOOL_LANE_ROUND_HOLDER_H

#include "svc/lane/state/replica.h"

/* Handles an offer, in which a worker or replica holder names the place for the copy of a piece's
 * state. -EFAULT: the place is outside the memory that the sender lends; other errors: the memory
 * of the state on this lane cannot be registered for writing. */
int replica_hear(struct worker *w, const struct record_backup *told);
/* Handles the loss of a replica holder: rounds that wrote to it begin again with the next
 * holder. */
void replica_cut_off(struct worker *w);
/* Sets the aggregator that is to store the copy of the piece's state; 0: a worker may store the
 * copy. If `when_known`, the change waits while the former holder may have the only copy of the
 * state; the former holder is replaced after the state was read. */
void replica_set_holder(struct piece *p, uint32_t holder, bool when_known);
/* Ends the wait of replica_set_holder(), because the state of the former holder was read or is not
 * needed. The next holder replaces the former holder. The caller starts the rounds of the piece. */
void replica_know(struct piece *p);

#endif
