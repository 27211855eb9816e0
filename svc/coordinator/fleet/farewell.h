/* Local aggregators that end by themselves. RULES.md: K94. */
#ifndef GRADPOOL_COORDINATOR_FLEET_FAREWELL_H
#define GRADPOOL_COORDINATOR_FLEET_FAREWELL_H

#include "svc/coordinator/aggregator/aggregator.h"
#include "svc/coordinator/fleet/fleet.h"

/* Frees the slot of a local aggregator that is about to end. The slot's next process starts at
 * once, if wanted; with fixed ports (--data-port) only after the end of this one. */
void fleet_leaves(struct aggregator *a);
/* Whether an aggregator that is about to end still has the ports of this slot. */
bool fleet_lacks_port(const struct slot *slot);
/* Processes without a slot: kill one, kill all, whether all have ended, free. */
void farewells_kill(struct service *s, const struct aggregator *a);
void farewells_end(struct service *s);
bool farewells_are_over(const struct service *s);
void farewells_destroy(struct service *s);

#endif
