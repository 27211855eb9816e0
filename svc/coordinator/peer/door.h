/* Connections as a whole: where they come in, how many there are, who takes turns. */
#ifndef GRADPOOL_COORDINATOR_PEER_DOOR_H
#define GRADPOOL_COORDINATOR_PEER_DOOR_H

#include "svc/coordinator/peer/peer.h"

#define STRANGER_PARTIES 16

/* Parties of those that are no tenant's (yet); each tenant has its own. */
enum door_party {
    DOOR_OPERATORS,
    DOOR_AGGREGATORS,
    DOOR_OTHERS, /* accepting over TCP */
    DOOR_STRANGERS,
    DOOR_PARTIES = DOOR_STRANGERS + STRANGER_PARTIES,
};

struct door {
    struct listener *tcp, *local;
    struct party *parties; /* DOOR_PARTIES */
    int spare_fd;          /* serves to turn somebody away when there is no other */
    struct list peers, tenants, waits;
    struct list frames_waiting; /* peers whose long messages wait for memory (frames.c) */
    uint64_t frame_bytes;       /* of long messages that are being received */
    struct list visitors;       /* peers, who has been silent longest first (visitors.c) */
    size_t visitors_count;
    size_t outer_descriptors; /* of connections over TCP, and of workers that are watched */
    uint64_t next_id;         /* of calls and waits */
};

/* Without listeners that listen. -ENOMEM. */
int door_create(struct service *s);
/* Closes what listens. */
void door_close(struct service *s);
void door_destroy(struct service *s);

#endif
