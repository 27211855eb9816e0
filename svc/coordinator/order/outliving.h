/* Finds the aggregators that end together with this process, and the jobs that can train on
 * without it. RULES.md: K93, K107. */
#ifndef GRADPOOL_COORDINATOR_ORDER_OUTLIVING_H
#define GRADPOOL_COORDINATOR_ORDER_OUTLIVING_H

#include "svc/coordinator/job/tensor.h"

struct service;

struct service_end {
    struct service *service;
    struct timer drain_timer, give_up_timer;
    /* Reason, as a sentence, for which local aggregators end with the service; NULL: they do
     * not. */
    const char *takes_along;
    bool ends_container; /* the container ends when this process does */
    /* 0: the service ends in order. Positive: number of a second signal. Negative: errno of the
     * error for which the service could not continue. */
    int ended_by;
};

/* Creates service_end when the service starts, because a parent process that ends later could not
 * be found any more. Returns 0 or -ENOMEM. */
int outliving_create(struct service *s);
void outliving_destroy(struct service *s);
/* Returns whether the aggregator ends with this process: a local aggregator does, and in a
 * container also one that was started by hand there. */
bool ends_with_service(const struct aggregator *a);
/* Returns whether an aggregator remains after the end of this process. */
bool outliving_has_any(const struct service *s);
/* Returns the number of the job's tensors that have pieces on `a`. */
size_t outliving_count_bound(const struct job *job, const struct aggregator *a);

#endif
