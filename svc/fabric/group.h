/* Groups of connections, for fabric_poll(). Groups take turns (turns.h). A connection therefore
 * waits for at most a few connections of each other group, even if the other group has many
 * connections. There are two levels: the group of a tenant contains the groups of its jobs. The
 * lane owns the groups. They may be used by one thread at a time. */
#ifndef GRADPOOL_FABRIC_GROUP_H
#define GRADPOOL_FABRIC_GROUP_H

#include "svc/base/list.h"

#include <stdint.h>

/* Maximum number of a job's connections that one poll checks. Over shared memory, each check costs
 * a few cache lines. */
#define FABRIC_GROUP_LOOKS_MAX 64

/* The mapper's time is charged to two accounts: one for mapping pages (S15), and one for accessing
 * mapped pages in advance, which never delays mapping (S16). */
enum fabric_bill { FABRIC_BILL_MAPPING, FABRIC_BILL_WARMTH, FABRIC_BILLS };

/* Kinds of fabrics with turns. The connections of a group belong to at most one fabric of each
 * kind. */
enum fabric_turn_kind { FABRIC_TURN_SHM, FABRIC_TURN_OFI, FABRIC_TURNS };

/* Turn of a group in a fabric. */
struct fabric_turn {
    struct list link;    /* node in the members of `above`, or in the fabric's list of tenants */
    struct list members; /* connections that polls read, or turns of jobs */
    struct fabric_turn *above; /* turn of the tenant; NULL: this is the turn of a tenant */
};

struct fabric_group {
    struct fabric_turn turns[FABRIC_TURNS];
    struct fabric_group *above; /* group of the tenant; NULL: this is the group of a tenant */
    /* Time up to which the group has used its share of the mapper. With a share of 1/n, work of t
     * nanoseconds moves this time forward by n * t, from the current time or later. New work for
     * the group waits while this time is too far in the future. */
    uint64_t until_ns[FABRIC_BILLS];
    /* Called in a poll for the group of a job. `polled_ns`: time of this poll spent on the job.
     * `helped_ns`: time that another thread has spent on the job. NULL: the group is not
     * charged. */
    void (*charge)(struct fabric_group *group, uint64_t polled_ns, uint64_t helped_ns);
};

void fabric_group_init(struct fabric_group *group, struct fabric_group *above);
/* Moves the group of a job to another tenant's group. */
void fabric_group_move(struct fabric_group *group, struct fabric_group *above);

static inline void fabric_group_charge(struct fabric_group *group, uint64_t polled_ns,
                                       uint64_t helped_ns)
{
    if (group && group->charge)
        group->charge(group, polled_ns, helped_ns);
}
#endif
