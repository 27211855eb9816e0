/* Groups of connections, for fabric_poll(). Groups take turns. A connection therefore waits for at
 * most a few connections of each other group, even if that group has many. There are two levels:
 * the group of a tenant contains the groups of its jobs. The lane owns the groups. They may be used
 * by one thread at a time. */
#ifndef GRADPOOL_FABRIC_GROUP_H
#define GRADPOOL_FABRIC_GROUP_H

#include "svc/base/list.h"

#include <stdint.h>

/* Maximum number of a job's connections that one poll checks. Each check costs a few cache
 * lines. */
#define FABRIC_GROUP_LOOKS_MAX 64

/* Two accounts of the mapper's time: for mapping pages (S15), and for accessing mapped pages in
 * advance, which never delays mapping (S16). */
enum fabric_bill { FABRIC_BILL_MAPPING, FABRIC_BILL_WARMTH, FABRIC_BILLS };

struct fabric_group {
    struct list link;    /* node in the fabric's list of tenants, or in the members of `above` */
    struct list members; /* connections, or groups */
    struct fabric_group *above; /* group of the tenant; NULL: this is the group of a tenant */
    /* time until which the mapper's past work for the group is paid */
    uint64_t until_ns[FABRIC_BILLS];
};

void fabric_group_init(struct fabric_group *group, struct fabric_group *above);
/* Moves the group of a job to another tenant's group. */
void fabric_group_move(struct fabric_group *group, struct fabric_group *above);
#endif
