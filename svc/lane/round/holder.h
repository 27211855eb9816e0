/* Keepers of copies of states (A31, A49). */
#ifndef GRADPOOL_LANE_ROUND_HOLDER_H
#define GRADPOOL_LANE_ROUND_HOLDER_H

#include "svc/lane/state/replica.h"

/* A worker tells where the copy of a piece's state goes. -EFAULT: not into memory that it lends;
 * -ENOMEM, ...: the lane cannot write from where the state lies. */
int replica_hear(struct worker *w, const struct record_backup *told);
/* Of a keeper: rounds that were being written there begin again when there is one. */
void replica_cut_off(struct worker *w);
/* Which aggregator is to keep the copy; 0: workers may. `when_known`: not before the state that the
 * one before may have is here. */
void replica_set_keeper(struct piece *p, uint32_t keeper, bool when_known);
/* It is: the next keeper is the one, without a word to the round that is about to begin. */
void replica_know(struct piece *p);

#endif
