/* A living worker's connection has died, silently or by a reset, and the worker connects again. */
#ifndef GRADPOOL_LANE_HEAR_REPLACE_H
#define GRADPOOL_LANE_HEAR_REPLACE_H

#include "svc/lane/types.h"

/* A connected worker has sent a good ticket again: ends the old connection and forgets its
 * announcements, so that the new one can be accepted. No effect where the old connection has to end
 * by itself first: after a goodbye, or over shared memory. */
void replace_connection(struct worker *w);
/* A replaced connection has closed. */
void replace_ended(struct lane_job *job);

/* The connection of `w` has ended with `error`. true: the worker has time to connect again, and its
 * announcements are forgotten; false: nothing was done, and the caller ends the worker. */
bool replace_await(struct worker *w, int error);
/* Fails the job of `w`, which will not connect again. For jobs with fixed ranks. */
void replace_fail(struct worker *w, int error);
/* Ends the wait for ranks whose time to connect again is over: a job with fixed ranks fails, of an
 * elastic job the coordinator gets the rank as lost (A40). Returns the time of the next such end;
 * 0: no rank is waited for. */
uint64_t lane_expire_away(struct lane *lane, uint64_t now_ns);

#endif
