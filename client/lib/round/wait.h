/* Waiting for requests. */
#ifndef GRADPOOL_CLIENT_LIB_ROUND_WAIT_H
#define GRADPOOL_CLIENT_LIB_ROUND_WAIT_H

#include "client/lib/job/request.h"

/* Waits for a request. The caller holds the job's lock, which is released during the wait and
 * during long copies. `timeout_ns`: time-out of the caller, for the error text. After -ETIMEDOUT
 * the caller may wait again. WAIT_GOES_ON: the request goes on (request_goes_on()), and the caller
 * waits again later. After any other result the request is released. */
#define WAIT_GOES_ON 1
int wait_locked(struct gp_request *q, uint64_t deadline_ns, uint64_t timeout_ns);
/* Returns the time-out of the caller, or the client's time-out if `timeout_ms` is 0 or less. */
uint64_t wait_timeout_ns(const gp_client *client, int timeout_ms);

#endif
