/* A lane in the reply to `gradpool status`. `only` is the tenant whose jobs are shown; NULL: those
 * of all, for operators and the display. */
#ifndef GRADPOOL_COORDINATOR_VIEW_LANES_H
#define GRADPOOL_COORDINATOR_VIEW_LANES_H

#include "svc/coordinator/service.h"
#include "svc/coordinator/view/pool.h"

/* NULL: out of memory, as the pool knows. */
WIRE(LaneView) * view_lane(struct pool *pool, const struct lane *lane, const struct tenant *only);
/* Whether a piece of the tenant's jobs is on the lane; always, where all are shown. */
bool view_lane_is_shown(const struct lane *lane, const struct tenant *only);

#endif
