/* Groups of a fabric's connections that polls read: tenants, and the jobs of each tenant (O35). A
 * connection without a group is read before all of these. */
#ifndef GRADPOOL_FABRIC_OFI_PROVIDER_PARTY_H
#define GRADPOOL_FABRIC_OFI_PROVIDER_PARTY_H

#include "svc/fabric/ofi/provider/types.h"

/* Order in which polls read the queues of connections that are not armed (O5). */
struct ofi_turns {
    struct list active;      /* connections without a party, linked by in_active */
    struct list tenants;     /* parties of tenants with members, linked by in_turn */
    struct list parties;     /* all parties with connections, linked by in_all */
    struct list old_parties; /* parties whose last connection has ended, likewise */
    struct list bills;       /* parties of jobs that are to be charged, linked by in_bill */
    uint32_t polls;
    bool is_behind; /* the last poll has not read all of these connections */
    unsigned polls_without_look;
    uint64_t visited_ns, looked_ns; /* last time of a visit, and of a look for other queues */
};

/* Place of a connection in this order. */
struct ofi_place {
    struct list in_active; /* node in `active`, or in the members of the party; or in no list */
    struct ofi_conn *conn;
    struct ofi_party *party; /* party of the connection's job; NULL: none */
    uint32_t read_in_poll;   /* number of the last poll that has read the queue */
};

struct ofi_party {
    struct list in_all;
    struct list in_turn;     /* in the members of `above`, or in `tenants`, while it has members */
    struct list members;     /* of a tenant: parties of jobs; of a job: places of connections */
    struct ofi_party *above; /* party of the tenant; NULL: this is the party of a tenant */
    struct fabric_group *group;
    unsigned users; /* number of connections, or of parties of jobs */
    struct list in_bill;
    uint64_t owed_ns; /* time of polls for this job that is not charged yet */
};

/* Return NULL if memory is missing. */
struct ofi_turns *ofi_turns_create(void);
struct ofi_place *ofi_place_create(struct ofi_conn *c);
/* Frees all parties. NULL is allowed. */
void ofi_turns_destroy(struct ofi_turns *turns);

/* Adds the connection to the party of its job. If memory is missing, it stays without a party. */
void ofi_party_join(struct ofi_conn *c, struct fabric_group *group);
/* Removes a connection that has ended. */
void ofi_party_leave(struct ofi_conn *c);
/* Adds the connection to those that polls read, unless it is one of them, or removes it. */
void ofi_party_activate(struct ofi_conn *c);
void ofi_party_rest(struct ofi_conn *c);
/* Returns whether polls read any connection. */
bool ofi_party_is_any_active(const struct ofi_fabric *f);
/* Calls may_rest() for each connection that polls read, until it returns false. Returns its last
 * result. may_rest() may call ofi_party_rest() for its argument. */
bool ofi_party_all(struct ofi_fabric *f,
                   bool (*may_rest)(struct ofi_fabric *f, struct ofi_conn *c));
/* Charges the job's party for `ns`. */
void ofi_party_bill(struct ofi_turns *turns, struct ofi_party *party, uint64_t ns);
/* Implements fabric_next_charge(). */
bool ofi_party_next_charge(struct fabric *f, struct fabric_charge *ret_charge);
/* Frees the parties without connections. */
void ofi_party_free_old(struct ofi_turns *turns);

#endif
