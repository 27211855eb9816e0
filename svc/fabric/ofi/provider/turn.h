/* Turns of fabric_ofi's connections in its polls (O35), and the connections that take part: those
 * whose queue is not armed (O5). */
#ifndef GRADPOOL_FABRIC_OFI_PROVIDER_TURN_H
#define GRADPOOL_FABRIC_OFI_PROVIDER_TURN_H

#include "svc/fabric/ofi/provider/types.h"
#include "svc/fabric/turns.h"

struct ofi_turns {
    struct list active; /* linked by in_active: connections whose queue is not armed */
    /* order in which polls read the active connections, linked by in_turn */
    struct fabric_turns all;
    uint32_t polls;
    unsigned polls_without_look;
    uint64_t polled_ns; /* time at which the current poll finished its last read of a connection */
    uint64_t looked_ns; /* time of the last search for active connections */
    bool moves_apart;   /* a read of one connection's queue moves no bytes of other connections */
};

/* Place of a connection in the turns of its fabric. */
struct ofi_place {
    struct list in_active, in_turn;
    struct ofi_conn *conn;
    struct fabric_group *group; /* NULL: no group */
    uint32_t read_in_poll;      /* number of the last poll that has read the queue */
};

/* Both functions return NULL if memory is missing. The caller frees the result. */
struct ofi_turns *ofi_turns_create(void);
struct ofi_place *ofi_place_create(struct ofi_conn *c);

/* After ofi_turn_begin() polls read the queue of the connection, until ofi_turn_end() is called. */
void ofi_turn_begin(struct ofi_conn *c);
void ofi_turn_end(struct ofi_conn *c);
/* Adds the connection to the group of its job. NULL: removes it from its group. */
void ofi_turn_join(struct ofi_conn *c, struct fabric_group *group);

#endif
