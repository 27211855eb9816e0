/* A worker of a job on a lane, and its connection. */
#ifndef GRADPOOL_LANE_WORKER_WORKER_H
#define GRADPOOL_LANE_WORKER_WORKER_H

#include "svc/lane/types.h"

void worker_open(struct worker *w, struct fabric *fabric, struct fabric_conn *conn);
void worker_close(struct worker *w, enum worker_state state);
/* Its connection may be replaced by another. */
bool worker_is_replaceable(const struct worker *w);
/* Whether a worker that has lost its connection, or is about to, may make another. */
bool worker_may_return(const struct worker *w);

#endif
