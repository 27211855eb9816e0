/* Waiting for requests. */
#ifndef GRADPOOL_CLIENT_LIB_ROUND_WAIT_H
#define GRADPOOL_CLIENT_LIB_ROUND_WAIT_H

#include "client/lib/job/request.h"

/* Waits with the job's lock held, which is released while bytes are copied. `timeout_ns`: time-out
 * of the caller, for the text. After -ETIMEDOUT the request is unchanged; after any other result it
 * is released. */
int wait_locked(struct gp_request *q, uint64_t deadline_ns, uint64_t timeout_ns);
/* Returns the time-out of the caller, or that of the client if it is 0. */
uint64_t wait_timeout_ns(const gp_client *client, int timeout_ms);

#endif
