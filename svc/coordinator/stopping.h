/* How the service ends, or leaves its jobs to the next start. README: K91 to K93, K107. */
#ifndef GRADPOOL_COORDINATOR_STOPPING_H
#define GRADPOOL_COORDINATOR_STOPPING_H

#include "svc/coordinator/job/tensor.h"

struct service;

/* Early: a parent that ends later hides what has started this process. */
void stopping_init(struct service *s);
/* SIGTERM, SIGINT or SIGHUP. */
void stopping_signal(struct service *s, int number);
/* `gradpool stop`. */
void stopping_handle(struct peer *p, const envelope *request);
/* Jobs with tasks on an aggregator that ends with this process, and soon, fail and end. */
void stopping_end_jobs_of(const struct aggregator *a);

#endif
