/* Which aggregators end with this process, and which jobs can train on without it. RULES.md: K93,
 * K107. */
#ifndef GRADPOOL_COORDINATOR_ORDER_OUTLIVING_H
#define GRADPOOL_COORDINATOR_ORDER_OUTLIVING_H

#include "svc/coordinator/job/tensor.h"

struct service;

struct service_end {
    struct service *service;
    struct timer drain_timer, give_up_timer;
    /* Why local aggregators end with the service, as a sentence; NULL: they do not. */
    const char *takes_along;
    bool ends_container; /* the container ends with this process */
    /* 0: an end in order; positive: a second signal; negative: errno for which the service could
     * not go on. */
    int ended_by;
};

/* Creates service_end at the start, since a parent that ends later could not be seen. -ENOMEM. */
int outliving_create(struct service *s);
void outliving_destroy(struct service *s);
/* Whether the aggregator ends with this process: a local one or, in a container, one joined by hand
 * there. */
bool ends_with_service(const struct aggregator *a);
/* Whether some aggregator outlives this process. */
bool outliving_has_any(const struct service *s);
/* Number of tensors of the job that have pieces on `a`. */
size_t outliving_count_bound(const struct job *job, const struct aggregator *a);

#endif
