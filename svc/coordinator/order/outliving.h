/* Which aggregators end with this process, and which jobs can train on without it. README: K93,
 * K107. */
#ifndef GRADPOOL_COORDINATOR_ORDER_OUTLIVING_H
#define GRADPOOL_COORDINATOR_ORDER_OUTLIVING_H

#include "svc/coordinator/job/tensor.h"

struct service;

struct service_end {
    struct service *service;
    struct timer drain_timer, give_up_timer;
    const char *takes_along; /* why local aggregators do not outlive the service; NULL: they do */
    bool ends_container;     /* the end of this process is that of all processes there */
    int ended_by;            /* 0: in order; a second signal; a negative errno: could not go on */
};

/* Early: a parent that ends later hides what has started this process. -ENOMEM. */
int outliving_create(struct service *s);
void outliving_destroy(struct service *s);
/* Where local aggregators end with this process (service_end.takes_along), those, and in a
 * container also those that were joined by hand there. */
bool ends_with_service(const struct aggregator *a);
/* Some aggregator stays, or comes back. */
bool outliving_has_any(const struct service *s);
/* Tensors of the job that have pieces on `a`. */
size_t outliving_count_bound(const struct job *job, const struct aggregator *a);

#endif
