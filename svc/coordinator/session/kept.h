/* Kept requests: requests without an answer yet. The coordinator handles each of them again later,
 * like a new request. */
#ifndef GRADPOOL_COORDINATOR_SESSION_KEPT_H
#define GRADPOOL_COORDINATOR_SESSION_KEPT_H

#include "svc/coordinator/peer/peer.h"

typedef void (*kept_handler)(struct peer *p, const envelope *request);

/* Keeps a request until kept_check() or the timeout. The kept requests of a peer may together be as
 * long as one message. A request beyond this length fails, and the text names `what` the request
 * waits for. */
void kept_add(struct peer *p, const envelope *request, uint64_t timeout_ns, kept_handler handler,
              const char *what);
/* Handles all requests that are kept for `handler`. The handler may keep a request again. */
void kept_check(struct service *s, kept_handler handler);
/* Like kept_check(), but runs in the event loop after the caller has returned. */
void kept_check_soon(struct service *s, kept_handler handler);

#endif
