/* A worker of a job on a lane, and its connection. */
#ifndef GRADPOOL_LANE_WORKER_WORKER_H
#define GRADPOOL_LANE_WORKER_WORKER_H

#include "svc/lane/types.h"

/* Opens the connection of a worker. The fabric owns `conn`, which may be accepted only after this
 * call. */
void worker_open(struct worker *w, struct fabric *fabric, struct fabric_conn *conn);
/* Called when the connection has ended. Drops lent memory, payloads and unsent messages. */
void worker_close(struct worker *w, enum worker_state state);
/* Returns whether another connection may replace the worker's open connection. */
bool worker_is_replaceable(const struct worker *w);
/* Returns whether a worker without a connection, or with a connection that is about to end, may
 * connect again. */
bool worker_may_return(const struct worker *w);

#endif
