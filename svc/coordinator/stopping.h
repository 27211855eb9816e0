/* The end of the service. Its jobs end, too, or are left to the next start. RULES.md: K91 to K93,
 * K107. */
#ifndef GRADPOOL_COORDINATOR_STOPPING_H
#define GRADPOOL_COORDINATOR_STOPPING_H

#include "svc/coordinator/job/tensor.h"

struct service;

void stopping_init(struct service *s);
/* Handles SIGTERM, SIGINT or SIGHUP. */
void stopping_signal(struct service *s, int number);
/* Handles `gradpool stop`. */
void stopping_handle(struct peer *p, const envelope *request);

/* Makes the loop end the service in order, because it cannot continue. The caller has logged the
 * reason. */
void service_give_up(struct service *s, int code);
/* Checks whether the end in order is complete, after an aggregator or a local process has ended. */
void service_check_drained(struct service *s);

#endif
