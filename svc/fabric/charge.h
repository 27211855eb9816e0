/* Time that a fabric has spent on the connections of a job. */
#ifndef GRADPOOL_FABRIC_CHARGE_H
#define GRADPOOL_FABRIC_CHARGE_H

#include "svc/fabric/fabric.h"

struct fabric_charge {
    struct fabric_group *group; /* group of a job, with a connection when the last poll began */
    uint64_t polled_ns;         /* part of the last fabric_poll() */
    uint64_t helped_ns;         /* time of another thread, which has unmapped memory */
};

/* Returns the next charge, or false if none is left. Called after each poll until the result is
 * false, and before the events are handled. Polls of a transport without charges are charged by
 * their events. */
bool fabric_next_charge(struct fabric *f, struct fabric_charge *ret_charge);

#endif
