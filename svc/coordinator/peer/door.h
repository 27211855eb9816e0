/* The door: listeners, connections, their number and their parties. */
#ifndef GRADPOOL_COORDINATOR_PEER_DOOR_H
#define GRADPOOL_COORDINATOR_PEER_DOOR_H

#include "svc/coordinator/peer/peer.h"

#define STRANGER_PARTIES 16

/* Parties of connections without a tenant; each tenant has a party of its own. */
enum door_party {
    DOOR_OPERATORS,
    DOOR_AGGREGATORS,
    DOOR_OTHERS, /* connections that are accepted over TCP */
    DOOR_STRANGERS,
    DOOR_PARTIES = DOOR_STRANGERS + STRANGER_PARTIES,
};

struct door {
    struct listener *tcp, *local;
    struct party *parties; /* array of DOOR_PARTIES */
    /* Descriptor that is closed to accept and close one connection when there is no other. */
    int spare_fd;
    struct list peers, tenants, waits;
    struct list frames_waiting; /* peers whose long messages wait for memory (frames.c) */
    uint64_t frame_bytes;       /* bytes reserved for long messages */
    /* Peers without job, the longest silent one first (visitors.c). */
    struct list visitors;
    size_t visitors_count;
    /* Number of descriptors of TCP connections, and of watched workers. */
    size_t outer_descriptors;
    uint64_t next_id; /* last number of a call or wait */
};

/* Creates the door; listener_open() opens its listeners. -ENOMEM. */
int door_create(struct service *s);
/* Closes the listeners. */
void door_close(struct service *s);
void door_destroy(struct service *s);

#endif
