/* Number of open lanes and its upper bound; numbers for lanes of aggregators that do not run
 * yet. */
#ifndef GRADPOOL_COORDINATOR_FLEET_OPEN_LANES_H
#define GRADPOOL_COORDINATOR_FLEET_OPEN_LANES_H

#include "svc/coordinator/aggregator/aggregator.h"
#include "svc/coordinator/fleet/fleet.h"

/* Number of lanes that may still open; lanes of starting aggregators count as open. */
size_t lanes_room(const struct service *s);
/* Like lanes_room(), but does not count lanes of starting aggregators, for jobs that cannot
 * wait. */
size_t lanes_room_now(const struct service *s);
/* Opens a lane to which a placement, an order or growth gives a task. */
void lane_open(struct lane *lane);
/* Number of a lane of a slot without aggregator, for use inside the rules only. */
uint32_t slot_lane(const struct slot *slot, uint32_t index);
struct slot *slot_of_lane(struct service *s, uint32_t lane);

/* Number of the slot's aggregator, for use inside the rules only. */
uint32_t slot_aggregator(const struct slot *slot);
/* Number of open and closing lanes, and of lanes that open with a starting aggregator. */
size_t lanes_open(const struct service *s);

#endif
