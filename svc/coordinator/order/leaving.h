/* Aggregators that are asked to end (SIGTERM): what they have goes to others first. README: K94. */
#ifndef GRADPOOL_COORDINATOR_ORDER_LEAVING_H
#define GRADPOOL_COORDINATOR_ORDER_LEAVING_H

#include "svc/coordinator/service.h"

void leaving_init(struct aggregator *a);
/* The aggregator is lost: nothing more is done for it. */
void leaving_stop(struct aggregator *a);
/* An aggregator has joined, or is back: those that leave may go on with it. */
void leaving_check_all(struct service *s);
/* All aggregators that end with this process (outliving.h) leave, none is replaced: what they have
 * goes to others, as far as there are any and until `by_ns`; jobs with tasks that stay end before
 * their lanes do (stopping.h). Once the aggregators have ended: `done`, from the loop. */
void state_leaves(struct service *s, uint64_t by_ns, void (*done)(struct service *s));

/* Whether they have ended. */
void leaving_check_done(struct service *s);

/* --- fleet/farewell.c --- */

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
