/* Handlers for messages of lanes about rounds. */
#ifndef GRADPOOL_CLIENT_LIB_ROUND_SETTLE_H
#define GRADPOOL_CLIENT_LIB_ROUND_SETTLE_H

#include "svc/fabric/fabric.h"

struct gp_tensor;

/* Handles an event of a connection, for the engine of the job. Called with the job's lock held. */
void settle_event(void *job, const struct fabric_event *event);

/* Ends the round of a tensor whose result was fetched (W22), and the tensor's part of the
 * request. */
void settle_taken(struct gp_tensor *t);

#endif
