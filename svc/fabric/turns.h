/* Turns of a fabric's connections in its polls. Tenants take turns. Within a tenant the jobs take
 * turns, and within a job the connections. The order depends on the numbers of events and
 * connections only, and never on time. With few connections each poll therefore reads all
 * connections, even on a slow host. */
#ifndef GRADPOOL_FABRIC_TURNS_H
#define GRADPOOL_FABRIC_TURNS_H

#include "svc/fabric/fabric.h"
#include "svc/fabric/group.h"

struct fabric_turns {
    struct list loose;   /* connections without a group, which do not take turns */
    struct list tenants; /* turns of tenants */
};

/* Writes events of the connection that contains `node`, and returns their number. Returns -1 if
 * this poll has read the connection already. The function may remove this node, but no other
 * node. */
typedef int fabric_take_fn(struct list *node, struct fabric_event *events, int events_max);

static inline void fabric_turns_init(struct fabric_turns *turns)
{
    list_init(&turns->loose);
    list_init(&turns->tenants);
}

/* Calls take() for one connection after the other, and returns the number of events. The next call
 * begins with the first connection, job and tenant that this call has not reached. */
int fabric_turns_take(struct fabric_turns *turns, fabric_take_fn *take, struct fabric_event *events,
                      int events_max);

/* Adds the connection's node to the turn of its job. NULL: the connection has no group. */
void fabric_turns_join(struct fabric_turns *turns, struct fabric_turn *job, struct list *node);
/* Removes the node. `job` as in fabric_turns_join(). */
void fabric_turns_leave(struct fabric_turn *job, struct list *node);

#endif
