/* How the service ends, or leaves its jobs to the next start. README: K91 to K93. */
#ifndef GRADPOOL_COORDINATOR_STOPPING_H
#define GRADPOOL_COORDINATOR_STOPPING_H

#include "svc/coordinator/tensors.h"

struct service;

/* Early: a parent that ends later hides what has started this process. */
void stopping_init(struct service *s);
/* SIGTERM, SIGINT or SIGHUP. */
void stopping_signal(struct service *s, int number);
/* `gradpool stop`. */
void stopping_handle(struct peer *p, const envelope *request);

#endif
