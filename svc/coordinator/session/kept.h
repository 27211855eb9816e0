/* Requests that cannot be handled yet and are kept: each is handled from the start again, as if it
 * came only then. */
#ifndef GRADPOOL_COORDINATOR_SESSION_KEPT_H
#define GRADPOOL_COORDINATOR_SESSION_KEPT_H

#include "svc/coordinator/peer/peer.h"

typedef void (*kept_handler)(struct peer *p, const envelope *request);

/* Until kept_check() or the time is over. Of one peer no more is kept than one message may hold, be
 * it in many; it is told so, `what` they wait for. */
void kept_add(struct peer *p, const envelope *request, uint64_t timeout_ns, kept_handler handler,
              const char *what);
/* Handles those that are for `handler`; each may be kept again. */
void kept_check(struct service *s, kept_handler handler);
/* The same from the loop, when the caller has returned. */
void kept_check_soon(struct service *s, kept_handler handler);

#endif
