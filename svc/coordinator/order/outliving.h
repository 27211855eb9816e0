/* Which aggregators end with this process, and which jobs can train on without it. README: K93,
 * K107. */
#ifndef GRADPOOL_COORDINATOR_ORDER_OUTLIVING_H
#define GRADPOOL_COORDINATOR_ORDER_OUTLIVING_H

#include "svc/coordinator/job/tensor.h"

struct service;

/* Early: a parent that ends later hides what has started this process. */
void outliving_init(struct service *s);
/* Where local aggregators end with this process (service.takes_along), those, and in a container
 * also those that were joined by hand there. */
bool ends_with_service(const struct aggregator *a);
/* Some aggregator stays, or comes back. */
bool outliving_has_any(const struct service *s);
/* Tensors of the job that have pieces on `a`. */
size_t outliving_count_bound(const struct job *job, const struct aggregator *a);

#endif
