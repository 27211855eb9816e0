/* Aggregators that are asked to end (SIGTERM): what they have goes to others first. README: K94. */
#ifndef GRADPOOL_COORDINATOR_ORDER_LEAVING_H
#define GRADPOOL_COORDINATOR_ORDER_LEAVING_H

#include "svc/coordinator/service.h"

/* The aggregator is lost: nothing more is done for it. */
void leaving_stop(struct aggregator *a);
/* An aggregator has joined, or is back: those that leave may go on with it. */
void leaving_check_all(struct service *s);
/* All aggregators that end with this process (outliving.h) leave, none is replaced: what they have
 * goes to others, as far as there are any and until `by_ns`; jobs with tasks that stay end before
 * their lanes do. Once the aggregators have ended: `done`, from the loop. */
void state_leaves(struct service *s, uint64_t by_ns, void (*done)(struct service *s));

/* Whether they have ended. */
void leaving_check_done(struct service *s);

/* Jobs with tasks on an aggregator that ends with this process, and soon, fail and end. */
void leaving_end_jobs(const struct aggregator *a);

void leaving_handle(struct peer *p, const envelope *message);

#endif
