/* How the service ends, or leaves its jobs to the next start. README: K91 to K93, K107. */
#ifndef GRADPOOL_COORDINATOR_STOPPING_H
#define GRADPOOL_COORDINATOR_STOPPING_H

#include "svc/coordinator/job/tensor.h"

struct service;

void stopping_init(struct service *s);
/* SIGTERM, SIGINT or SIGHUP. */
void stopping_signal(struct service *s, int number);
/* `gradpool stop`. */
void stopping_handle(struct peer *p, const envelope *request);

/* Ends in order, soon, because it cannot go on; the reason has been logged. */
void service_give_up(struct service *s, int code);
/* After an aggregator or a local process has gone: the end of a drain, perhaps. */
void service_check_drained(struct service *s);

#endif
