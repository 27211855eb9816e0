/* Lanes in the reply to `gradpool status`. `only`: the tenant whose jobs are shown; NULL: all jobs,
 * for operators and the display. */
#ifndef GRADPOOL_COORDINATOR_VIEW_LANES_H
#define GRADPOOL_COORDINATOR_VIEW_LANES_H

#include "svc/coordinator/service.h"
#include "svc/coordinator/view/pool.h"

/* Builds a row of the reply. Returns NULL if memory is missing; `failed` of the pool is then
 * set. */
WIRE(LaneView) * view_lane(struct pool *pool, const struct lane *lane, const struct tenant *only);
/* Returns whether the reply contains this lane. `only` NULL: the reply contains all lanes.
 * Otherwise it contains the lanes with pieces of this tenant. */
bool view_lane_is_shown(const struct lane *lane, const struct tenant *only);

#endif
