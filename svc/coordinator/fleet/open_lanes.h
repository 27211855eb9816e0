/* Number of open lanes and its limit. Numbers for lanes of aggregators that do not run yet. */
#ifndef GRADPOOL_COORDINATOR_FLEET_OPEN_LANES_H
#define GRADPOOL_COORDINATOR_FLEET_OPEN_LANES_H

#include "svc/coordinator/aggregator/aggregator.h"
#include "svc/coordinator/fleet/fleet.h"

/* Returns how many more lanes may open. The future lanes of aggregators that are starting count as
 * open. */
size_t lanes_room(const struct service *s);
/* Like lanes_room(), but ignores aggregators that are starting. Used for jobs that need a lane at
 * once. */
size_t lanes_room_now(const struct service *s);
/* Opens a lane because a task is placed on it or moved to it. */
void lane_open(struct lane *lane);
/* Returns a number for a future lane of a slot without an aggregator. Only the rules of growth use
 * such numbers. */
uint32_t slot_lane(const struct slot *slot, uint32_t index);
struct slot *slot_of_lane(struct service *s, uint32_t lane);

/* Returns a number for the aggregator that may start in the slot. Only the rules of growth use such
 * numbers. */
uint32_t slot_aggregator(const struct slot *slot);
/* Returns the number of open and closing lanes, plus the lanes that will open when starting
 * aggregators join. */
size_t lanes_open(const struct service *s);

#endif
