/* The interface between lane and worker on the one side, and the network or shared memory on the
 * other.
 *
 * The lane drives (svc/wire/README.md, W1): a worker sends small announcements and lends regions of
 * its memory; a lane reads gradients from these regions and writes results into them. No worker
 * ever gets a key to the memory of a lane.
 *
 * A fabric belongs to one thread at a time. Nothing blocks, and there are no callbacks: a function
 * posts work, and the outcome is an event of fabric_poll(). Every function may be called for a
 * connection whose peer is gone: it returns -ECONNRESET, and the last event of the connection is
 * FABRIC_EVENT_CLOSED. */
#ifndef GRADPOOL_FABRIC_FABRIC_H
#define GRADPOOL_FABRIC_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fabric;
struct fabric_conn;
struct fabric_group;
struct region;

/* Maximum bytes of a ticket. It fits into the connect data of an RDMA device (W7). */
#define FABRIC_TICKET_BYTES_MAX 48
/* Maximum bytes of a message without payload. It fits into one record of the shared-memory ring. */
#define FABRIC_MESSAGE_BYTES_MAX 120
#define FABRIC_ADDRESS_BYTES_MAX 128
/* Maximum number of regions that one connection may lend. The worker chooses their ids, 0 ..
 * FABRIC_REGIONS_MAX-1. */
#define FABRIC_REGIONS_MAX 64

enum fabric_event_kind {
    FABRIC_EVENT_NONE,
    /* a peer wants to connect; data, bytes: its ticket. The connection is accepted or refused */
    FABRIC_EVENT_REQUEST,
    FABRIC_EVENT_OPEN, /* the connection can be used; both sides get this event, once */
    /* data, bytes: a message and its payload; the receiver calls fabric_message_done() */
    FABRIC_EVENT_MESSAGE,
    FABRIC_EVENT_REGION, /* the peer has lent region `word` of `bytes` bytes; data is NULL */
    /* the fabric_read() with this context has ended; error 0: the bytes are here */
    FABRIC_EVENT_READ,
    /* the fabric_write() with this context has ended; error 0: the bytes are in the memory of the
     * peer, not only in a buffer on the way (W4) */
    FABRIC_EVENT_WRITTEN,
    FABRIC_EVENT_WORD, /* worker: a write or notify that carries `word` has landed completely */
    FABRIC_EVENT_ROOM, /* a function that returned -EAGAIN on this connection may be called again */
    /* The last event of a connection. error 0: closed in order; -ECONNREFUSED: `word` is the reason
     * of the peer (a positive errno); other errors: -ECONNRESET, ... The connection is freed when
     * the next fabric_poll() begins. */
    FABRIC_EVENT_CLOSED,
};

struct fabric_event {
    enum fabric_event_kind kind;
    int error; /* 0 or a negative errno */
    struct fabric_conn *conn;
    void *owner;   /* as passed to fabric_connect() or fabric_accept(); NULL for REQUEST */
    void *context; /* READ, WRITTEN: the context that was posted */
    const void *data;
    size_t bytes;
    uint32_t word;
    uint64_t spent_ns; /* time that another thread has spent on mapping the pages that it names */
};

struct fabric_options {
    /* ofi: network interface on which to listen and connect; NULL: any */
    const char *interface_name;
    const char *provider;     /* ofi: NULL means "tcp" */
    size_t payload_bytes_max; /* longest payload of a message; 0: payloads are refused */
    /* shm listener: users that may connect besides the user of this process */
    const uint32_t *allowed_uids;
    size_t allowed_uids_count;
    /* shm listener: maximum bytes that one connection may lend; 0: 1 TiB */
    uint64_t mapped_bytes_max;
    /* shm listener: called during a poll, with the owner of a connection, before a region of it is
     * mapped. Returns 0, or the error with which the connection ends. NULL: every region is
     * mapped. */
    int (*may_lend)(void *owner, uint64_t bytes);
};

/* Opens a fabric. `kind`: "shm" or "ofi" ("mem" is opened by test/fabric_mem, because it needs its
 * own network). -EINVAL: unknown kind; -ENOSYS: the provider is missing; -ENOMEM. */
int fabric_open(const char *kind, const struct fabric_options *options, struct fabric **ret_fabric);

/* Closes all connections without further events, and frees everything. NULL is fine. */
void fabric_close(struct fabric *f);

const char *fabric_kind(const struct fabric *f);

/* Returns a line for the log with provider, domain and address ("ofi: provider tcp, domain
 * eth0, ..."). */
const char *fabric_describe(const struct fabric *f);

/* Listens. Addresses: shm: "@name", an abstract Unix socket that can be reached in one network
 * namespace of one host; ofi: "host:port" or "[v6]:port", where port 0 chooses a free one; mem: any
 * name. `ret_address` (FABRIC_ADDRESS_BYTES_MAX bytes): the address for peers. -EADDRINUSE,
 * -EADDRNOTAVAIL, -EINVAL. */
int fabric_listen(struct fabric *f, const char *address, char *ret_address);

/* Begins to connect, and returns at once. The event OPEN or CLOSED follows. -ECONNREFUSED: there is
 * no listener (known at once for shm only). `ticket` is copied. */
int fabric_connect(struct fabric *f, const char *address, const void *ticket, size_t ticket_bytes,
                   void *owner, struct fabric_conn **ret_conn);

/* Accepts or refuses a REQUEST, in the same or a later poll. The bytes of the ticket are valid
 * until the next poll. After a refusal the connection is gone, and no event follows. `reason`:
 * positive errno. */
int fabric_accept(struct fabric_conn *c, void *owner);
void fabric_refuse(struct fabric_conn *c, int reason);
/* Makes the connection take its turns with the group, which must exist until CLOSED. Called right
 * after fabric_accept(). Does nothing for a transport without turns. */
void fabric_join_group(struct fabric_conn *c, struct fabric_group *group);

/* Begins to close the connection. Each posted operation still gets its READ or WRITTEN event, in
 * most cases with an error. Then CLOSED follows, when no operation touches local memory any more.
 * The peer gets CLOSED, too. A second call does nothing. */
void fabric_disconnect(struct fabric_conn *c);
/* Worker: disconnects from a lane that is lost but may still write (W5). CLOSED follows when the
 * lane cannot write any more: it has closed its end, or its process has ended. Where memory is
 * shared, a process that has done neither after FABRIC_FENCE_NS is killed, if the kernel
 * permits it; if not, CLOSED waits for its end. */
#define FABRIC_FENCE_NS (250 * NS_PER_MS)
void fabric_fence(struct fabric_conn *c);
/* Worker: disconnects from a lane that is not lost. CLOSED waits for the lane's end, however long,
 * and no process is killed. If the lane is lost before CLOSED, the worker may call
 * fabric_fence(). */
void fabric_leave(struct fabric_conn *c);

/* Returns the address of the peer for texts: "pid 4242 uid 0" or "10.0.0.3:51234". */
const char *fabric_peer(const struct fabric_conn *c);
/* shm: returns the number of the peer's process. Other transports: 0, unknown. */
int fabric_peer_pid(const struct fabric_conn *c);

/* Sends a message of header and payload. The header is copied (at most FABRIC_MESSAGE_BYTES_MAX).
 * The payload is not copied: it must be in a region lent on this connection, and must stay
 * unchanged until the peer has answered; the commit rule (W4) ensures this for lent memory.
 * Messages of a connection arrive in order, and after the writes posted before them. shm refuses
 * payloads with -EMSGSIZE, because the peer maps the memory. -EAGAIN: the queue is full (ROOM
 * follows); -ECONNRESET; -EMSGSIZE. */
int fabric_send(struct fabric_conn *c, const void *header, size_t header_bytes, const void *payload,
                size_t payload_bytes);

/* Returns the buffer of a MESSAGE event; called once for each such event. Until then the buffer is
 * one of the connection's two receives (W6), so a caller should hold one at most. */
void fabric_message_done(struct fabric_conn *c, const void *data);
/* Returns the number of MESSAGE buffers of a connection that may be held while another message can
 * still arrive. */
int fabric_messages_held_max(const struct fabric *f);

/* Worker: lends a region to the peer under `id`. The peer gets REGION before any later message. A
 * region may be lent on several connections. shm: -ENOTSUP for memory that was not made by
 * region_create(). */
int fabric_lend(struct fabric_conn *c, const struct region *region, uint32_t id);
/* Worker: ends the lending of a region, when no lane needs its contents any more. */
void fabric_withdraw(struct fabric_conn *c, uint32_t id);

/* Lane: returns a pointer to `bytes` bytes at `offset` of region `id`, if the peer's memory is
 * mapped into this process; otherwise NULL. NULL also for an unknown region or a range out of
 * bounds; fabric_region_bytes() shows which. The pointer is valid until the next fabric_poll(),
 * which may handle a WITHDRAW. */
void *fabric_map(struct fabric_conn *c, uint32_t id, uint64_t offset, size_t bytes);
/* Returns whether fabric_map() returns a pointer for every region that a peer lends. */
bool fabric_maps(const struct fabric *f);
/* Lane: returns whether all bytes read through fabric_map() until now came from the peer. False: a
 * page was not available and was read as zeros (S8); CLOSED follows. Called before any result of
 * these bytes is sent. */
bool fabric_is_sound(const struct fabric_conn *c);
/* Lane: returns whether all memory lent until now can be accessed without page faults. Another
 * thread warms the pages, after those for which a record waits. */
bool fabric_is_warm(const struct fabric_conn *c);
/* Returns the bytes of a lent region; 0: no region has this id. */
uint64_t fabric_region_bytes(const struct fabric_conn *c, uint32_t id);

/* Registers memory that fabric_read() and fabric_write() will use locally (a lane's slots), without
 * remote rights. shm and mem need no registration, and do nothing. */
int fabric_pool_register(struct fabric *f, void *base, size_t bytes);
/* Called before the memory is freed, when no operation uses it any more. Unknown memory is not an
 * error. */
void fabric_pool_unregister(struct fabric *f, void *base);

/* Lane: posts a read from, or a write to, the peer's region. -EFAULT: the range is out of bounds;
 * -EAGAIN: the queue is full (ROOM follows). Each successful call is followed by one event READ or
 * WRITTEN. Operations of a connection are carried out in the order of posting, with one exception:
 * a read may still return the bytes from before a short write that has no WRITTEN yet. */
int fabric_read(struct fabric_conn *c, uint32_t id, uint64_t offset, void *local, size_t bytes,
                void *context);
int fabric_write(struct fabric_conn *c, uint32_t id, uint64_t offset, const void *local,
                 size_t bytes, void *context);
/* Like fabric_write(). In addition the peer gets WORD when these bytes, and all bytes written
 * before on this connection, have landed. */
int fabric_write_word(struct fabric_conn *c, uint32_t id, uint64_t offset, const void *local,
                      size_t bytes, uint32_t word, void *context);
/* Sends WORD without bytes: for results stored through fabric_map(), and for barriers. 0: WRITTEN
 * follows; 1: the peer has the word already, and no event follows. */
int fabric_notify(struct fabric_conn *c, uint32_t word, void *context);

/* Makes progress, and returns up to `events_max` events. The result is their number, never an
 * error: an error of a connection is in its CLOSED event. Each peer is woken once for all posts
 * since the last poll or flush (one doorbell for a batch). */
int fabric_poll(struct fabric *f, struct fabric_event *events, int events_max);
/* Rings the doorbells now, and sends gathered posts. Posts may be held back until the next flush,
 * poll or arm, so that they leave together. */
void fabric_flush(struct fabric *f);

/* Object on which to sleep until an event arrives. fabric_arm() sets either the descriptor or the
 * bell. */
struct fabric_wait {
    int fd;         /* if >= 0: sleep in epoll or poll until it is readable */
    uint32_t *bell; /* otherwise: sleep by futex while *bell == bell_value (not a private futex) */
    uint32_t bell_value;
};
/* Announces that the caller is about to sleep. 0: the caller may sleep on `ret_wait`; -EAGAIN:
 * there is work, so poll again. Peers and caller use the pair "publish; fence; read sleeping" and
 * "set sleeping; fence; read the work" (W8). The next poll ends the announcement. */
int fabric_arm(struct fabric *f, struct fabric_wait *ret_wait);

/* For a forked child: closes the descriptors that the child has inherited. Shared memory stays
 * untouched. */
void fabric_abandon_in_child(struct fabric *f);

#endif
