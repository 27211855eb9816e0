/* How many lanes are open and may be, and the numbers of those that have not come yet. */
#ifndef GRADPOOL_COORDINATOR_FLEET_OPEN_LANES_H
#define GRADPOOL_COORDINATOR_FLEET_OPEN_LANES_H

#include "svc/coordinator/aggregator/aggregator.h"
#include "svc/coordinator/fleet/fleet.h"

/* How many more lanes may open. */
size_t lanes_room(const struct service *s);
/* The same for who cannot wait: what is about to come opens the fewer. */
size_t lanes_room_now(const struct service *s);
/* The lane opens: a placement, an order or growth gives it a task. */
void lane_open(struct lane *lane);
/* A lane of an aggregator that does not run has no number yet: this one, in what rules see. */
uint32_t slot_lane(const struct slot *slot, uint32_t index);
struct slot *slot_of_lane(struct service *s, uint32_t lane);

/* So for the aggregator itself. */
uint32_t slot_aggregator(const struct slot *slot);
/* Open or closing, and those about to come. */
size_t lanes_open(const struct service *s);

#endif
