/* Local aggregators that end without an order of this coordinator. RULES.md: K94. */
#ifndef GRADPOOL_COORDINATOR_FLEET_FAREWELL_H
#define GRADPOOL_COORDINATOR_FLEET_FAREWELL_H

#include "svc/coordinator/aggregator/aggregator.h"
#include "svc/coordinator/fleet/fleet.h"

/* Frees the slot of a local aggregator that is about to end. The next process of the slot starts at
 * once if the slot is wanted. With fixed ports (--data-port) it starts after the end of this
 * process. */
void fleet_leaves(struct aggregator *a);
/* Returns whether an aggregator that is about to end still uses the ports of this slot. */
bool fleet_lacks_port(const struct slot *slot);
/* Processes that have left their slot: farewells_kill() kills one, the others kill all, return
 * whether all have ended, and free the records. */
void farewells_kill(struct service *s, const struct aggregator *a);
void farewells_end(struct service *s);
bool farewells_are_over(const struct service *s);
void farewells_destroy(struct service *s);

#endif
