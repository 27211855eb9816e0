/* Planned ends of aggregators (SIGTERM): tasks and replicas move to other aggregators first.
 * RULES.md: K94. */
#ifndef GRADPOOL_COORDINATOR_ORDER_LEAVING_H
#define GRADPOOL_COORDINATOR_ORDER_LEAVING_H

#include "svc/coordinator/service.h"

/* Frees the state of the planned end, because the aggregator is lost or freed. */
void leaving_stop(struct aggregator *a);
/* Continues planned ends that may use an aggregator that has joined or is back. */
void leaving_check_all(struct service *s);
/* Begins the end of all aggregators that end with this process (outliving.h). No new ones are
 * started. Until `by_ns` their tasks and replicas move to other aggregators. A job whose tasks stay
 * ends before its lanes do. `done` is called from the loop after those aggregators have ended. */
void state_leaves(struct service *s, uint64_t by_ns, void (*done)(struct service *s));

/* Calls `done` of state_leaves() if all of its aggregators have ended. */
void leaving_check_done(struct service *s);

/* Fails and ends the jobs that have tasks on an aggregator that ends with this process. */
void leaving_end_jobs(const struct aggregator *a);

void leaving_handle(struct peer *p, const envelope *message);

#endif
