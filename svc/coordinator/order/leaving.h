/* Planned ends of aggregators (after SIGTERM): their tasks and replicas move to other aggregators
 * first (RULES.md: K94). */
#ifndef GRADPOOL_COORDINATOR_ORDER_LEAVING_H
#define GRADPOOL_COORDINATOR_ORDER_LEAVING_H

#include "svc/coordinator/service.h"

/* Frees the state of the planned end, because the aggregator is lost or is being freed. */
void leaving_stop(struct aggregator *a);
/* Continues planned ends after an aggregator has joined or returned, because tasks may move
 * to it. */
void leaving_check_all(struct service *s);
/* Begins the end of all aggregators that end with this process (outliving.h). From then on no
 * aggregator starts. Until `by_ns`, tasks and replicas move to other aggregators. A job with
 * tasks that could not move is ended before the lanes end. The event loop calls `done` after these
 * aggregators have ended. */
void state_leaves(struct service *s, uint64_t by_ns, void (*done)(struct service *s));

/* Calls `done` of state_leaves() if all aggregators that end with this process have ended. */
void leaving_check_done(struct service *s);

/* Fails and ends the jobs with tasks on `a`, which ends with this process. */
void leaving_end_jobs(const struct aggregator *a);

void leaving_handle(struct peer *p, const envelope *message);

#endif
