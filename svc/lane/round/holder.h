/* Replica holders of pieces: offers, changes and losses (A31, A49). */
#ifndef GRADPOOL_LANE_ROUND_HOLDER_H
#define GRADPOOL_LANE_ROUND_HOLDER_H

#include "svc/lane/state/replica.h"

/* A worker or replica holder names the place for the copy of a piece's state. -EFAULT: outside of
 * the memory that it lends; other errors: the state's memory cannot be registered for writing. */
int replica_hear(struct worker *w, const struct record_backup *told);
/* A replica holder has gone: rounds that wrote to it begin again with the next holder. */
void replica_cut_off(struct worker *w);
/* Names the aggregator that is to store the copy; 0: workers may. `when_known`: only after the
 * state at the former holder has been read, if it may be there. */
void replica_set_keeper(struct piece *p, uint32_t keeper, bool when_known);
/* The state at the former holder is read or needless: the next holder becomes the holder. Starts no
 * round; the caller does. */
void replica_know(struct piece *p);

#endif
