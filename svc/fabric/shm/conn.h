/* Structs of fabric_shm: the connection and the fabric. Functions for the life of a connection that
 * are the same for a lane and a worker. */
#ifndef GRADPOOL_FABRIC_SHM_CONN_H
#define GRADPOOL_FABRIC_SHM_CONN_H

#include "svc/base/list.h"
#include "svc/fabric/fabric_ops.h"
#include "svc/fabric/shm/peer/bell.h"
#include "svc/fabric/shm/peer/ring.h"
#include "svc/fabric/shm/peer/socket.h"
#include "svc/fabric/turns.h"

#define SHM_MESSAGES_MAX 64
#define SHM_COMPLETIONS_MAX 256u /* a power of two */

enum shm_state {
    SHM_GREETING, /* lane: HELLO has not arrived */
    SHM_ASKED,    /* lane: REQUEST is reported; the owner has to answer */
    SHM_ASKING,   /* worker: the lane has not answered */
    SHM_OPEN,
    SHM_FENCING, /* worker: CLOSED follows when the lane has closed its end or is dead (S11) */
    SHM_ENDED,   /* CLOSED is still to be reported */
    SHM_GONE,    /* CLOSED was reported; the next poll frees the connection */
};

struct shm_conn;
struct shm_lane;
struct shm_lent;
struct shm_mapper;
struct shm_watch;

/* Functions that differ between the fabric of a lane and that of a worker. */
struct shm_side {
    /* removes the connection's descriptors from the epoll set of the fabric */
    void (*unwatch)(struct shm_conn *c);
    void (*hear)(struct shm_conn *c);   /* receives and executes a packet of the handshake */
    void (*let_go)(struct shm_conn *c); /* unmaps the peer's regions */
};

struct shm_fabric {
    struct fabric base;
    struct list conns;
    struct fabric_turns turns; /* all connections except those in `gone`, linked by scan_link */
    struct list gone;
    struct list news; /* connections whose peer the next flush may have to wake */
    struct shm_bell *bell;
    int bell_fd;
    bool is_armed;
    char description[FABRIC_ADDRESS_BYTES_MAX + 32];
    const struct shm_side *side;
    uint32_t polls;
    int polls_since_sockets;

    /* NULL in the fabric of a worker. A fabric that listens is a lane's, and never connects. */
    struct shm_lane *lane;
    struct shm_mapper *mapper; /* NULL for workers: only a lane maps regions */
    uint32_t *allowed_uids;
    size_t allowed_uids_count;
    uint64_t mapped_bytes_max;
    int (*may_lend)(void *owner, uint64_t bytes);

    struct shm_watch *watch; /* NULL for lanes, and before the first connection of a worker */
};

struct shm_completion {
    enum fabric_event_kind kind; /* FABRIC_EVENT_READ or FABRIC_EVENT_WRITTEN */
    void *context;
};

struct shm_conn {
    struct fabric_conn base;
    struct list link;           /* node in fabric.conns or fabric.gone */
    struct list scan_link;      /* node in fabric.turns */
    struct fabric_group *group; /* NULL: no group, or in state SHM_GONE */
    struct list news_link;      /* node in fabric.news */
    enum shm_state state;
    bool is_surfaced; /* REQUEST was reported */
    bool open_due;    /* OPEN is to be reported */
    bool pushed;      /* a record was added to the ring since the last flush */
    bool room_wanted; /* a function has returned -EAGAIN: ROOM will be reported */
    bool socket_full; /* the socket's buffer is full, so the descriptor of a region was not sent */
    /* the peer has closed the connection; its earlier records are still to be reported */
    bool hung_up;
    /* a page of the worker's memory was missing when this process accessed it */
    _Atomic bool is_poisoned;
    uint32_t final_tail;
    struct shm_producer out;
    struct shm_consumer in;
    struct shm_bell *peer_bell; /* worker: NULL until OPEN */
    void *owner;
    uint64_t messages_free; /* bit i: messages[i] is free */
    uint32_t completions_head, completions_tail;

    struct shm_rings *rings;
    int socket;
    int wake_fd;  /* lane's eventfd, to which the worker writes */
    int fence_fd; /* timer with the deadline by which the lane must have closed its end; -1: none */
    struct shm_peer peer;
    char peer_text[48];
    int error;       /* error for CLOSED */
    uint32_t reason; /* reason for CLOSED */
    uint8_t ticket[FABRIC_TICKET_BYTES_MAX];
    size_t ticket_bytes;
    uint64_t lent;         /* worker: bit i: region i is lent */
    uint64_t withdrawals;  /* worker: bit i: the WITHDRAW of region i is still to be sent */
    uint64_t mapped_bytes; /* lane: sum of the lengths of all regions */
    struct shm_lent *regions[FABRIC_REGIONS_MAX]; /* lane: regions by id; NULL: none */
    /* lane: region that is being mapped; until then records stay in the ring */
    struct shm_lent *waits;
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

/* Creates a connection. It owns `socket` and the peer's pidfd, which are closed after an error.
 * Returns 0 or -ENOMEM. */
int shm_conn_create(struct shm_fabric *f, int socket, const struct shm_peer *peer,
                    enum shm_state state, struct shm_conn **ret_conn);
void shm_conn_free(struct shm_conn *c);
void shm_conn_close_fds(struct shm_conn *c);
/* Sends BYE with the reason to the peer: 0 for an end in order, otherwise a positive errno. */
void shm_conn_send_bye(struct shm_conn *c, uint32_t reason);
/* Ends the connection: sends BYE, then reports CLOSED with this error and reason. Only the first
 * call has an effect. */
void shm_conn_end(struct shm_conn *c, int error, uint32_t reason);
/* Ends the connection without any further event. */
void shm_conn_drop(struct shm_conn *c);
/* Ends a connection that the peer has closed. The reason is the one in the peer's BYE. Called after
 * the peer's records were reported. */
void shm_conn_farewell(struct shm_conn *c);
/* Checks the peer's socket and process for packets of the handshake, BYE and death. */
void shm_conn_look(struct shm_conn *c);
/* Adds the connection to the list of connections whose peer the next flush may have to wake. */
void shm_conn_note(struct shm_conn *c);
/* Returns whether a function that returned -EAGAIN would succeed now. */
bool shm_conn_has_room(struct shm_conn *c);
/* Removes the connection from its group and from fabric.turns. */
void shm_conn_leave_group(struct shm_conn *c);

#endif
