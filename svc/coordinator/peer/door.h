/* The door: the listeners of the service, their connections, the number and the parties of
 * connections. */
#ifndef GRADPOOL_COORDINATOR_PEER_DOOR_H
#define GRADPOOL_COORDINATOR_PEER_DOOR_H

#include "svc/coordinator/peer/peer.h"

#define STRANGER_PARTIES 16

/* Parties of connections that have no tenant. Each tenant has a party of its own. */
enum door_party {
    DOOR_OPERATORS,
    DOOR_AGGREGATORS,
    DOOR_OTHERS, /* connections accepted over TCP */
    DOOR_STRANGERS,
    DOOR_PARTIES = DOOR_STRANGERS + STRANGER_PARTIES,
};

struct door {
    struct listener *tcp, *local;
    struct party *parties; /* array with DOOR_PARTIES entries */
    /* Descriptor kept in reserve. When no other is left, it is closed in order to accept and close
     * one connection. */
    int spare_fd;
    struct list peers, tenants, waits;
    struct list frames_waiting; /* peers whose long messages wait for memory (frames.c) */
    uint64_t frame_bytes;       /* bytes reserved for long messages */
    /* Peers without a job. The one that has been silent longest is first (visitors.c). */
    struct list visitors;
    size_t visitors_count;
    /* Number of descriptors for TCP connections and watched workers. */
    size_t outer_descriptors;
    uint64_t next_id; /* number of the last call or wait */
};

/* Creates the door. listener_open() opens its listeners later. Returns 0 or -ENOMEM. */
int door_create(struct service *s);
/* Closes the listeners. */
void door_close(struct service *s);
void door_destroy(struct service *s);

#endif
