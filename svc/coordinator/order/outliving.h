/* The aggregators that end together with this process, and the jobs that can continue without this
 * process. RULES.md: K93, K107. */
#ifndef GRADPOOL_COORDINATOR_ORDER_OUTLIVING_H
#define GRADPOOL_COORDINATOR_ORDER_OUTLIVING_H

#include "svc/coordinator/job/tensor.h"

struct service;

struct service_end {
    struct service *service;
    struct timer drain_timer, give_up_timer;
    /* reason why local aggregators end with the service, as text; NULL: local aggregators
     * continue */
    const char *takes_along;
    bool ends_container; /* the container ends together with this process */
    /* 0: the service ends in order. Positive: number of a second signal. Negative: errno value of
     * the error that makes the service end. */
    int ended_by;
};

/* Determines how this process would end. Called when the service starts, because the parent process
 * may end later. Returns 0 or -ENOMEM. */
int outliving_create(struct service *s);
void outliving_destroy(struct service *s);
/* Returns whether the aggregator ends with this process. This is true for a local aggregator, and
 * for an aggregator that was started by hand in the same container. */
bool ends_with_service(const struct aggregator *a);
/* Returns whether an aggregator continues after the end of this process. */
bool outliving_has_any(const struct service *s);
/* Returns how many of the job's tensors and tables have pieces or shards on `a`. Failed ones do not
 * count. */
size_t outliving_count_bound(const struct job *job, const struct aggregator *a);

#endif
