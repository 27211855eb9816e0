/* Replaces the connection of a live worker after the old connection was reset, or has ended without
 * a message. */
#ifndef GRADPOOL_LANE_HEAR_REPLACE_H
#define GRADPOOL_LANE_HEAR_REPLACE_H

#include "svc/lane/types.h"

/* Ends the old connection of a worker that has sent a valid ticket again, and drops the
 * announcements of that connection. The caller can then accept the new connection. An old
 * connection that ends by itself, after a goodbye or over shared memory, is not ended by this call.
 * A worker whose connection breaks too often fails its job, unless the job is elastic. */
void replace_connection(struct worker *w);
/* Called for the CLOSED event of a connection that replace_connection() has ended. A dropped job is
 * freed only after all such events. */
void replace_ended(struct lane_job *job);

/* Handles the end of the connection of `w`, with `error`. Returns true if the worker may connect
 * again; the announcements of the connection are dropped. After false the caller ends the
 * worker. */
bool replace_await(struct worker *w, int error);
/* Fails the job of `w`, which will not connect again. Only for jobs with a fixed set of ranks. */
void replace_fail(struct worker *w, int error);
/* Ends the wait for ranks whose time to reconnect has passed. A job with a fixed set of ranks then
 * fails; in an elastic job, the lost rank is reported to the coordinator (A40). Returns the time at
 * which the next wait ends; 0: none. */
uint64_t lane_expire_away(struct lane *lane, uint64_t now_ns);

#endif
