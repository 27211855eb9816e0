/* One connection of fabric_shm, and the fabric that has it: their structs, and the life of a
 * connection, which is the same for a lane and a worker. */
#ifndef GRADPOOL_FABRIC_SHM_CONN_H
#define GRADPOOL_FABRIC_SHM_CONN_H

#include "svc/base/list.h"
#include "svc/fabric/fabric_ops.h"
#include "svc/fabric/shm/peer/bell.h"
#include "svc/fabric/shm/peer/ring.h"
#include "svc/fabric/shm/peer/socket.h"

#define SHM_MESSAGES_MAX 64
#define SHM_COMPLETIONS_MAX 256u /* a power of two */

enum shm_state {
    SHM_GREETING, /* lane: a socket without HELLO yet */
    SHM_ASKED,    /* lane: REQUEST is due, then the owner's answer */
    SHM_ASKING,   /* worker: no answer of the lane yet */
    SHM_OPEN,
    SHM_FENCING, /* worker: CLOSED is due once the lane has closed its end or is dead (S11) */
    SHM_ENDED,   /* CLOSED is due */
    SHM_GONE,    /* no event any more; freed when the next poll begins */
};

struct shm_conn;
struct shm_lane;
struct shm_lent;
struct shm_mapper;
struct shm_watch;

/* The steps in the life of a connection that differ between a lane's fabric and a worker's. */
struct shm_side {
    void (*unwatch)(struct shm_conn *c); /* its descriptors leave the fabric's epoll set */
    void (*hear)(struct shm_conn *c);    /* a packet of the handshake has come */
    void (*let_go)(struct shm_conn *c);  /* the peer's regions are unmapped */
};

struct shm_fabric {
    struct fabric base;
    struct list conns;
    struct list tenants;   /* groups of connections */
    struct list ungrouped; /* connections without a group: they take no turns */
    struct list gone;
    struct list news; /* connections whose peer flush() looks at */
    struct shm_bell *bell;
    int bell_fd;
    bool is_armed;
    char description[FABRIC_ADDRESS_BYTES_MAX + 32];
    const struct shm_side *side;
    uint32_t polls;
    int polls_since_sockets;

    /* A fabric that listens is a lane's, and never connects. */
    struct shm_lane *lane;     /* NULL: a worker's */
    struct shm_mapper *mapper; /* a lane's */
    uint32_t *allowed_uids;
    size_t allowed_uids_count;
    uint64_t mapped_bytes_max;
    int (*may_lend)(void *owner, uint64_t bytes);

    struct shm_watch *watch; /* a worker's; NULL before its first connection */
};

struct shm_completion {
    enum fabric_event_kind kind; /* READ or WRITTEN */
    void *context;
};

struct shm_conn {
    struct fabric_conn base;
    struct list link;           /* in fabric.conns, or in fabric.gone */
    struct list scan_link;      /* in the members of `group`, or in fabric.ungrouped */
    struct fabric_group *group; /* NULL: ungrouped, or gone */
    struct list news_link;      /* in fabric.news */
    enum shm_state state;
    bool is_surfaced;         /* REQUEST has been handed out */
    bool open_due;            /* OPEN is to be handed out */
    bool pushed;              /* since the last flush */
    bool room_wanted;         /* a verb returned -EAGAIN: a ROOM event is due when there is room */
    bool socket_full;         /* a region's descriptor found no room on the socket */
    bool hung_up;             /* the peer is gone; its records of before are still handed out */
    _Atomic bool is_poisoned; /* a page of the worker's memory has failed under this process */
    uint32_t final_tail;
    struct shm_producer out;
    struct shm_consumer in;
    struct shm_bell *peer_bell; /* NULL until OPEN on a worker */
    void *owner;
    uint64_t messages_free; /* bit i: messages[i] is */
    uint32_t completions_head, completions_tail;

    struct shm_rings *rings;
    int socket;
    int wake_fd;  /* eventfd of the lane: the worker writes it */
    int fence_fd; /* timer for the end of the lane's time to stop writing; -1: none */
    struct shm_peer peer;
    char peer_text[48];
    int error;       /* error of the CLOSED event */
    uint32_t reason; /* reason of the CLOSED event */
    uint8_t ticket[FABRIC_TICKET_BYTES_MAX];
    size_t ticket_bytes;
    uint64_t lent;         /* worker: bit i: region i is lent */
    uint64_t withdrawals;  /* worker: bit i: a WITHDRAW that found the ring full */
    uint64_t mapped_bytes; /* lane: sum of regions */
    struct shm_lent *regions[FABRIC_REGIONS_MAX]; /* lane: NULL: none with this id */
    struct shm_lent *waits; /* lane: is being mapped; records stay in the ring until then */
    struct shm_completion completions[SHM_COMPLETIONS_MAX];
    struct shm_record messages[SHM_MESSAGES_MAX];
};

static inline struct shm_fabric *shm_fabric(struct fabric *f) { return (struct shm_fabric *)f; }
static inline struct shm_conn *shm_conn(struct fabric_conn *c) { return (struct shm_conn *)c; }
static inline struct shm_fabric *shm_owner(const struct shm_conn *c)
{
    return (struct shm_fabric *)c->base.fabric;
}
static inline bool shm_is_lane(const struct shm_conn *c) { return shm_owner(c)->lane != NULL; }

/* Takes over `socket` and the peer's pidfd, also when it fails. -ENOMEM. */
int shm_conn_create(struct shm_fabric *f, int socket, const struct shm_peer *peer,
                    enum shm_state state, struct shm_conn **ret_conn);
void shm_conn_free(struct shm_conn *c);
void shm_conn_close_fds(struct shm_conn *c);
/* Sends the peer a BYE with the reason: 0 for an orderly end, else a positive errno. */
void shm_conn_send_bye(struct shm_conn *c, uint32_t reason);
/* Ends the connection: BYE to the peer, then CLOSED with this error and reason. Only the first call
 * has an effect. */
void shm_conn_end(struct shm_conn *c, int error, uint32_t reason);
/* Ends the connection without any further event. */
void shm_conn_drop(struct shm_conn *c);
/* Ends the connection of a peer that is gone, with the reason that its BYE gives. Its records have
 * been handed out. */
void shm_conn_farewell(struct shm_conn *c);
/* Polls socket and process of the peer: handshake, BYE, death. */
void shm_conn_look(struct shm_conn *c);
/* Puts the connection on the list of those whose peer the next flush may wake. */
void shm_conn_note(struct shm_conn *c);
/* True when a verb that returned -EAGAIN would succeed now. */
bool shm_conn_has_room(struct shm_conn *c);
/* Takes the connection out of its group, or out of the ungrouped ones. */
void shm_conn_leave_group(struct shm_conn *c);

#endif
