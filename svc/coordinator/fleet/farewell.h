/* Local aggregators that leave by themselves. README: K94. */
#ifndef GRADPOOL_COORDINATOR_FLEET_FAREWELL_H
#define GRADPOOL_COORDINATOR_FLEET_FAREWELL_H

#include "svc/coordinator/aggregator/aggregator.h"
#include "svc/coordinator/fleet/fleet.h"

/* A local aggregator leaves: its slot is free, and the next one starts there at once, beside it, if
 * one is wanted; not before its end where it has fixed ports (--data-port). */
void fleet_leaves(struct aggregator *a);
/* The aggregator that leaves has the ports of this slot. */
bool fleet_lacks_port(const struct slot *slot);
/* Processes that have left their slots: ended at once, all gone, freed. */
void farewells_kill(struct service *s, const struct aggregator *a);
void farewells_end(struct service *s);
bool farewells_are_over(const struct service *s);
void farewells_destroy(struct service *s);

#endif
