/* Local aggregators that leave the service without an order of this coordinator (RULES.md: K94). */
#ifndef GRADPOOL_COORDINATOR_FLEET_FAREWELL_H
#define GRADPOOL_COORDINATOR_FLEET_FAREWELL_H

#include "svc/coordinator/aggregator/aggregator.h"
#include "svc/coordinator/fleet/fleet.h"

/* Frees the slot of a local aggregator that is about to end. If the slot is still wanted, its next
 * process starts at once. With fixed ports (--data-port), the next process starts after the present
 * process has ended. */
void fleet_leaves(struct aggregator *a);
/* Returns whether the former aggregator of this slot is still running and uses the slot's ports. */
bool fleet_lacks_port(const struct slot *slot);
/* Processes that are about to end, and whose slots were freed: farewells_kill() kills the process
 * of one aggregator, and farewells_end() kills all. farewells_are_over() returns whether all have
 * ended. farewells_destroy() frees the records without ending a process. */
void farewells_kill(struct service *s, const struct aggregator *a);
void farewells_end(struct service *s);
bool farewells_are_over(const struct service *s);
void farewells_destroy(struct service *s);

#endif
