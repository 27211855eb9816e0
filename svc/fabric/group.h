/* Groups of connections, for fabric_poll(). Groups take turns, so a connection waits for a few
 * connections of each other group at most, however many these have. There are two levels: the group
 * of a tenant contains the groups of its jobs. The lane owns the groups. One thread at a time uses
 * them. */
#ifndef GRADPOOL_FABRIC_GROUP_H
#define GRADPOOL_FABRIC_GROUP_H

#include "svc/base/list.h"

#include <stdint.h>

/* Maximum connections of a job that one poll visits, because each costs a few cache lines. */
#define FABRIC_GROUP_LOOKS_MAX 64

/* Two separate accounts of time: for mapping pages (S15), and for warming pages, which delays no
 * mapping (S16). */
enum fabric_bill { FABRIC_BILL_MAPPING, FABRIC_BILL_WARMTH, FABRIC_BILLS };

struct fabric_group {
    struct list link;    /* in the list of tenants of the fabric, or in the members of `above` */
    struct list members; /* the members: connections, or groups */
    struct fabric_group *above;      /* group of the tenant; NULL: this group is a tenant's */
    uint64_t until_ns[FABRIC_BILLS]; /* time until which the mapper's past work is paid for */
};

void fabric_group_init(struct fabric_group *group, struct fabric_group *above);
/* Moves the group of a job to the group of another tenant. */
void fabric_group_move(struct fabric_group *group, struct fabric_group *above);
#endif
