/* A worker's connection has died, without a word or by a reset, and the worker makes another. */
#ifndef GRADPOOL_LANE_HEAR_REPLACE_H
#define GRADPOOL_LANE_HEAR_REPLACE_H

#include "svc/lane/types.h"

/* Of a worker whose ticket was good while it is connected: ends that connection and forgets what
 * was said on it, so that another may be accepted. Changes nothing where it must end by itself
 * first: a goodbye was said, or the lane itself would see its end. */
void replace_connection(struct worker *w);
/* Such a connection has ended. */
void replace_ended(struct lane_job *job);

/* The connection of `w` has ended with `error`. true: another may follow, and what was said on this
 * one is forgotten; false: nothing was done, and no other is to be waited for. */
bool replace_await(struct worker *w, int error);
/* Nobody waits for another connection of `w` (any longer): its job fails. Of fixed ranks only. */
void replace_fail(struct worker *w, int error);
/* Ranks that had their time to connect again: their jobs fail, or the coordinator decides (A40).
 * Returns when the next one has had it; 0: no rank is waited for. */
uint64_t lane_expire_away(struct lane *lane, uint64_t now_ns);

#endif
