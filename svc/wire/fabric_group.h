/* Connections that belong together, for fabric_poll(): groups take turns, so that a connection
 * waits for those of others no longer than for a few of each, however many they have. Two levels:
 * a tenant's group holds those of its jobs. The lane owns them; one thread at a time. */
#ifndef GRADPOOL_WIRE_FABRIC_GROUP_H
#define GRADPOOL_WIRE_FABRIC_GROUP_H

#include "svc/base/list.h"

#include <stdint.h>

/* Connections of a job that one poll looks at: each costs a few lines of cache. */
#define FABRIC_GROUP_LOOKS_MAX 64

struct fabric_conn;

struct fabric_group {
    struct list link;           /* among those of its fabric, or in `members` of the one above */
    struct list members;        /* connections, or groups */
    struct fabric_group *above; /* NULL: a tenant's */
    uint64_t busy_until_ns;     /* what others did for it outside of the lane's thread (S15) */
};

void fabric_group_init(struct fabric_group *group, struct fabric_group *above);
/* Another tenant's from now on. */
void fabric_group_move(struct fabric_group *group, struct fabric_group *above);
/* Right after fabric_accept(): from now on the connection takes its turns with the group, which
 * must be there until CLOSED. Where a transport has no turns there is no effect. */
void fabric_join_group(struct fabric_conn *c, struct fabric_group *group);

#endif
