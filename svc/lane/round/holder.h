/* Replica holders of pieces: their offers, changes and losses (A31, A49). */
#ifndef GRADPOOL_LANE_ROUND_HOLDER_H
#define GRADPOOL_LANE_ROUND_HOLDER_H

#include "svc/lane/state/replica.h"

/* Handles an offer: a worker or replica holder names the place for the copy of a piece's state.
 * -EFAULT: the place is outside of the memory that it lends; other errors: the memory of the state
 * cannot be registered for writing. */
int replica_hear(struct worker *w, const struct record_backup *told);
/* Handles the loss of a replica holder: rounds that wrote to it begin again with the next
 * holder. */
void replica_cut_off(struct worker *w);
/* Sets the aggregator that is going to store the copy; 0: workers may store it. `when_known`: the
 * change waits until the state at the former holder was read, if it may be there. */
void replica_set_keeper(struct piece *p, uint32_t keeper, bool when_known);
/* The state at the former holder was read or is not needed, so the next holder becomes the holder.
 * Starts no round; the caller does. */
void replica_know(struct piece *p);

#endif
