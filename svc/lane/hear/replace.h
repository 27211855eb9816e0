/* Replaces the connection of a living worker, after the old one has died silently or by a reset. */
#ifndef GRADPOOL_LANE_HEAR_REPLACE_H
#define GRADPOOL_LANE_HEAR_REPLACE_H

#include "svc/lane/types.h"

/* A connected worker has sent a valid ticket again. Ends its old connection and drops its
 * announcements, so that the new connection can be accepted. Does nothing if the old connection has
 * to end without this: after a goodbye, or over shared memory. */
void replace_connection(struct worker *w);
/* Handles the CLOSED event of a replaced connection. */
void replace_ended(struct lane_job *job);

/* The connection of `w` has ended with `error`. True: the worker has time to connect again, and its
 * announcements are dropped. False: nothing was done, and the caller ends the worker. */
bool replace_await(struct worker *w, int error);
/* Fails the job of `w`, which will not connect again. For jobs with a fixed set of ranks. */
void replace_fail(struct worker *w, int error);
/* Ends the wait for ranks whose time to connect again is over. A job with a fixed set of ranks then
 * fails; the lost rank of an elastic job is reported to the coordinator (A40). Returns the time at
 * which the next wait ends; 0: none. */
uint64_t lane_expire_away(struct lane *lane, uint64_t now_ns);

#endif
