/* Inside fabric_shm: its fabric and its connection. Only the shm_*.c files and fabric_shm.c include
 * this. */
#ifndef GRADPOOL_WIRE_SHM_CONN_H
#define GRADPOOL_WIRE_SHM_CONN_H

#include "svc/base/list.h"
#include "svc/wire/fabric_ops.h"
#include "svc/wire/shm_bell.h"
#include "svc/wire/shm_mapper.h"
#include "svc/wire/shm_ring.h"
#include "svc/wire/shm_socket.h"
#include "svc/wire/shm_watch.h"

#define SHM_MESSAGES_MAX 64
#define SHM_COMPLETIONS_MAX 256u /* a power of two */

enum shm_state {
    SHM_GREETING, /* lane: a socket, but no HELLO yet */
    SHM_ASKED,    /* lane: REQUEST is to be surfaced, then answered */
    SHM_ASKING,   /* worker: the lane has not answered yet */
    SHM_OPEN,
    SHM_FENCING, /* worker: CLOSED is due once the lane has closed its end or is dead (S11) */
    SHM_ENDED,   /* CLOSED is to be surfaced */
    SHM_GONE,    /* no event any more; freed when the next poll begins */
};

struct shm_fabric {
    struct fabric base;
    struct list conns;
    struct list gone;
    struct list news; /* connections whose peer flush() looks at */
    struct shm_bell *bell;
    int bell_fd;
    bool is_armed;
    char description[FABRIC_ADDRESS_BYTES_MAX + 32];

    /* A fabric that listens is a lane's, and never connects. */
    bool is_lane;
    int listener_fd;
    int epoll_fd;
    int spare_fd; /* given up for a moment to turn somebody away when descriptors run out */
    int rest_fd;  /* a timer: when the listener, which rests, is looked at again */
    int polls_since_sockets;
    uint32_t polls;
    int greetings; /* connections in SHM_GREETING */
    uint32_t *allowed_uids;
    size_t allowed_uids_count;
    uint64_t mapped_bytes_max;
    int (*may_lend)(void *owner, uint64_t bytes);
    struct shm_mapper mapper; /* a lane's */

    struct shm_watch watch; /* a worker's */
};

struct shm_completion {
    enum fabric_event_kind kind; /* READ or WRITTEN */
    void *context;
};

struct shm_conn {
    struct fabric_conn base;
    struct list link;      /* in conns, or in gone */
    struct list news_link; /* in news */
    enum shm_state state;
    bool is_surfaced; /* REQUEST has been */
    bool open_due;    /* OPEN is to be surfaced */
    bool pushed;      /* since the last flush */
    bool room_wanted; /* a verb said -EAGAIN; ROOM is due when there is some */
    bool socket_full; /* a region's descriptor did not go out */
    bool hung_up;     /* the peer is gone; what it published before is still to be surfaced */
    _Atomic bool is_poisoned; /* a page of the worker's memory has failed under us */
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
    int fence_fd; /* timer: the lane's time to let go is over; -1: none */
    struct shm_peer peer;
    char peer_text[48];
    int error;       /* for CLOSED */
    uint32_t reason; /* likewise */
    uint8_t ticket[FABRIC_TICKET_BYTES_MAX];
    size_t ticket_bytes;
    uint64_t lent;         /* worker: bit i: region i is lent */
    uint64_t withdrawals;  /* worker: bit i: a WITHDRAW that found the ring full */
    uint64_t mapped_bytes; /* lane: sum of regions */
    struct shm_lent *regions[FABRIC_REGIONS_MAX]; /* lane: NULL: none with this id */
    struct shm_lent *waits;     /* lane: is being mapped, and no record is taken before it is */
    struct shm_record *waiting; /* of `messages`: names what is being mapped; NULL: a LEND does */
    struct shm_completion completions[SHM_COMPLETIONS_MAX];
    struct shm_record messages[SHM_MESSAGES_MAX];
};

static inline struct shm_fabric *shm_fabric(struct fabric *f) { return (struct shm_fabric *)f; }
static inline struct shm_conn *shm_conn(struct fabric_conn *c) { return (struct shm_conn *)c; }
static inline struct shm_fabric *shm_owner(const struct shm_conn *c)
{
    return (struct shm_fabric *)c->base.fabric;
}

/* shm_conn.c: the life of a connection, the same on both sides. */

/* Takes over `socket` and the peer's pidfd, also when it fails. */
int shm_conn_create(struct shm_fabric *f, int socket, const struct shm_peer *peer,
                    enum shm_state state, struct shm_conn **ret_conn);
void shm_conn_free(struct shm_conn *c);
void shm_conn_close_fds(struct shm_conn *c);
/* Says goodbye; CLOSED with this error and word follows. Only the first call has an effect. */
void shm_conn_end(struct shm_conn *c, int error, uint32_t reason);
/* Says goodbye, and waits for the peer's end of the socket. */
void shm_conn_leave(struct shm_conn *c);
/* The same, for so long; then the peer is killed. */
void shm_conn_fence(struct shm_conn *c);
/* Says goodbye; no event follows. */
void shm_conn_drop(struct shm_conn *c);
/* The peer is gone and all it had to say is surfaced: ends with the reason that it gave. */
void shm_conn_farewell(struct shm_conn *c);
/* Looks at socket and process: hand-shake, death. Called when there may be news of them. */
void shm_conn_look(struct shm_conn *c);
/* Its peer is to be looked at by the next flush. */
void shm_conn_note(struct shm_conn *c);
/* Whether what was asked for with -EAGAIN can be had now. */
bool shm_conn_has_room(struct shm_conn *c);

/* shm_events.c: what a connection has to tell. */

/* Takes up to `events_max` (at least one) events. */
int shm_conn_take(struct shm_conn *c, struct fabric_event *events, int events_max);
bool shm_conn_has_work(struct shm_conn *c);

/* shm_verbs.c: what is done on an open connection. */

int shm_verb_send(struct fabric_conn *c, const void *header, size_t header_bytes,
                  const void *payload, size_t payload_bytes);
void shm_verb_message_done(struct fabric_conn *c, const void *data);
int shm_verb_lend(struct fabric_conn *c, const struct region *region, uint32_t id);
void shm_verb_withdraw(struct fabric_conn *c, uint32_t id);
void *shm_verb_map(struct fabric_conn *c, uint32_t id, uint64_t offset, size_t bytes);
bool shm_verb_is_sound(const struct fabric_conn *c);
uint64_t shm_verb_region_bytes(const struct fabric_conn *c, uint32_t id);
int shm_verb_read(struct fabric_conn *c, uint32_t id, uint64_t offset, void *local, size_t bytes,
                  void *context);
int shm_verb_write(struct fabric_conn *c, uint32_t id, uint64_t offset, const void *local,
                   size_t bytes, void *context);
int shm_verb_write_word(struct fabric_conn *c, uint32_t id, uint64_t offset, const void *local,
                        size_t bytes, uint32_t word, void *context);
int shm_verb_notify(struct fabric_conn *c, uint32_t word, void *context);
/* Sends WITHDRAWs that found the ring full. */
void shm_withdraw_rest(struct shm_conn *c);

/* shm_lane.c: the side that listens. */

int shm_lane_listen(struct fabric *f, const char *address, char *ret_address);
/* Looks at all sockets that have news. */
void shm_lane_look(struct shm_fabric *f);
/* A HELLO has come. */
void shm_lane_greet(struct shm_conn *c);
int shm_lane_accept(struct fabric_conn *c, void *owner);
void shm_lane_refuse(struct fabric_conn *c, int reason);
void shm_lane_unwatch(struct shm_conn *c);

/* shm_lending.c: what is lent to it. */

/* A LEND record has come: its region, whose descriptor is next on the socket, begins to be mapped.
 */
int shm_lending_begin(struct shm_conn *c, const struct shm_record *record);
int shm_lending_withdraw(struct shm_conn *c, uint32_t id);
void shm_lending_end(struct shm_conn *c);
/* Whether the record (of `messages`) names pages that must be mapped first: then it waits. */
bool shm_lending_waits(struct shm_conn *c, struct shm_record *record);
/* Whether records wait for the mapper, which is not done. */
bool shm_lending_is_stuck(const struct shm_conn *c);
/* If the mapper is done: 1: `event` is that; 0: `ret_record`, which has waited, may be handed out,
 * or NULL: none. -EFAULT: the record names pages that are not there; errors of mmap. */
int shm_lending_resume(struct shm_conn *c, struct fabric_event *event,
                       struct shm_record **ret_record);
/* NULL: not lent, or a page of it is absent. */
void *shm_lending_place(const struct shm_conn *c, uint32_t id, uint64_t offset, size_t bytes);

/* shm_worker.c: the side that connects. */

int shm_worker_connect(struct fabric *f, const char *address, const void *ticket,
                       size_t ticket_bytes, void *owner, struct fabric_conn **ret_conn);
void shm_worker_fence(struct fabric_conn *c);
void shm_worker_leave(struct fabric_conn *c);
void shm_worker_look(struct shm_fabric *f);
/* The lane's answer has come. */
void shm_worker_answer(struct shm_conn *c);

#endif
