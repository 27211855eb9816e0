/* Connections that belong together, for fabric_poll(): groups take turns, so that a connection
 * waits for a few of each other group at most, however many these have. Two levels: a tenant's
 * group has the groups of its jobs. The lane owns them; one thread at a time. */
#ifndef GRADPOOL_FABRIC_GROUP_H
#define GRADPOOL_FABRIC_GROUP_H

#include "svc/base/list.h"

#include <stdint.h>

/* Connections of a job that one poll visits: each costs a few cache lines. */
#define FABRIC_GROUP_LOOKS_MAX 64

/* Pages that are mapped (S15), and those that are warmed, which delays no mapping (S16). */
enum fabric_bill { FABRIC_BILL_MAPPING, FABRIC_BILL_WARMTH, FABRIC_BILLS };

struct fabric_group {
    struct list link;                /* in the fabric's tenants, or in the members of `above` */
    struct list members;             /* connections, or groups */
    struct fabric_group *above;      /* NULL: a tenant's */
    uint64_t until_ns[FABRIC_BILLS]; /* for the mapper's work: time that is paid for */
};

void fabric_group_init(struct fabric_group *group, struct fabric_group *above);
/* Moves a job's group to another tenant's. */
void fabric_group_move(struct fabric_group *group, struct fabric_group *above);
#endif
