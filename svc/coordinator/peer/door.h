/* Listeners of the service, the connections that they have accepted, and the parties of these
 * connections. */
#ifndef GRADPOOL_COORDINATOR_PEER_DOOR_H
#define GRADPOOL_COORDINATOR_PEER_DOOR_H

#include "svc/coordinator/peer/peer.h"

#define STRANGER_PARTIES 16

/* Parties of connections without a tenant. Each tenant has its own party. */
enum door_party {
    DOOR_OPERATORS,
    DOOR_AGGREGATORS,
    DOOR_OTHERS, /* TCP connections whose tenant is unknown, because no Hello has arrived */
    DOOR_STRANGERS,
    DOOR_PARTIES = DOOR_STRANGERS + STRANGER_PARTIES,
};

struct door {
    struct listener *tcp, *local;
    struct party *parties; /* array of DOOR_PARTIES parties */
    /* Reserved descriptor. If no other descriptor is free, this descriptor is closed, a new
     * connection is accepted and closed, and the reserved descriptor is opened again. */
    int spare_fd;
    struct list peers, tenants, waits;
    struct list frames_waiting; /* peers whose long messages wait for memory (frames.c) */
    uint64_t frame_bytes;       /* bytes reserved for long messages */
    /* TCP connections without a job, in the order of their last messages, oldest first
     * (visitors.c) */
    struct list visitors;
    size_t visitors_count;
    /* number of descriptors of TCP connections and watched workers */
    size_t outer_descriptors;
    uint64_t next_id; /* number of the last call or open request */
};

/* Creates the state. listener_open() opens the listeners later. Returns 0 or -ENOMEM. */
int door_create(struct service *s);
void door_close(struct service *s);
void door_destroy(struct service *s);

#endif
