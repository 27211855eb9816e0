/* Waiting for requests. */
#ifndef GRADPOOL_CLIENT_LIB_ROUND_WAIT_H
#define GRADPOOL_CLIENT_LIB_ROUND_WAIT_H

#include "client/lib/job/request.h"

/* With the job's lock, which is released while bytes are copied. `timeout_ns`: the caller's, for
 * the text. -ETIMEDOUT leaves the request as it is; anything else has released it. */
int wait_locked(struct gp_request *q, uint64_t deadline_ns, uint64_t timeout_ns);
/* The time-out of a caller, or the client's where that is 0. */
uint64_t wait_timeout_ns(const gp_client *client, int timeout_ms);

#endif
