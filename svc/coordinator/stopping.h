/* End of the service. Its jobs end, too, or continue at the next start. RULES.md: K91 to K93,
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

/* Ends the service in order from the event loop, because the service cannot continue. The caller
 * has logged the reason. */
void service_give_up(struct service *s, int code);
/* Ends the process if all aggregators and local processes have ended. Called after the end of each
 * aggregator and local process. */
void service_check_drained(struct service *s);

#endif
