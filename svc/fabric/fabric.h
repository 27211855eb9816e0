/* Interface of lanes and workers to the network or to shared memory.
 *
 * The lane initiates all transfers (svc/wire/README.md, W1). A worker sends small announcements and
 * lends regions of its memory. A lane reads gradients from these regions and writes results into
 * them. No worker receives a key to the memory of a lane.
 *
 * A fabric may be used by one thread at a time. Nothing blocks, and there are no callbacks: a
 * function posts an operation, and fabric_poll() returns the outcome as an event. Every function
 * may be called for a connection whose peer is gone. It then returns -ECONNRESET, and the
 * connection's last event is FABRIC_EVENT_CLOSED. */
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
/* Maximum number of regions that one connection may lend. The worker chooses their ids, from 0 to
 * FABRIC_REGIONS_MAX-1. */
#define FABRIC_REGIONS_MAX 64

enum fabric_event_kind {
    FABRIC_EVENT_NONE,
    /* a peer requests a connection; data, bytes: its ticket. The receiver accepts or refuses the
     * connection */
    FABRIC_EVENT_REQUEST,
    FABRIC_EVENT_OPEN, /* the connection can be used; sent once to each end */
    /* data, bytes: a message with its payload; the receiver calls fabric_message_done() */
    FABRIC_EVENT_MESSAGE,
    FABRIC_EVENT_REGION, /* the peer has lent region `word` of `bytes` bytes; data is NULL */
    /* the fabric_read() with this context has ended; error 0: the bytes are in local memory */
    FABRIC_EVENT_READ,
    /* the fabric_write() with this context has ended; error 0: the bytes are in the peer's memory,
     * not only in a buffer on the way (W4) */
    FABRIC_EVENT_WRITTEN,
    FABRIC_EVENT_WORD, /* worker: all bytes before `word` have been written */
    /* a function that has returned -EAGAIN on this connection may be called again */
    FABRIC_EVENT_ROOM,
    /* The last event of a connection. error 0: closed in order. -ECONNREFUSED: `word` is the peer's
     * reason (a positive errno). Any other error, such as -ECONNRESET: the connection has failed.
     * The next fabric_poll() frees the connection. */
    FABRIC_EVENT_CLOSED,
};

struct fabric_event {
    enum fabric_event_kind kind;
    int error; /* 0 or a negative errno */
    struct fabric_conn *conn;
    void *owner;   /* argument of fabric_connect() or fabric_accept(); NULL for REQUEST */
    void *context; /* READ, WRITTEN: argument of the function that posted the operation */
    const void *data;
    size_t bytes;
    uint32_t word;
    /* REGION, MESSAGE: time that another thread has spent on mapping the pages */
    uint64_t spent_ns;
};

struct fabric_options {
    /* ofi: network interface on which to listen and connect; NULL: any */
    const char *interface_name;
    const char *provider;     /* provider of libfabric, for ofi; NULL: "tcp" */
    size_t payload_bytes_max; /* longest payload of a message; 0: payloads are refused */
    /* shm listener: users that may connect in addition to the user of this process */
    const uint32_t *allowed_uids;
    size_t allowed_uids_count;
    /* shm listener: maximum bytes that one connection may lend; 0: 1 TiB */
    uint64_t mapped_bytes_max;
    /* shm listener: called during a poll before a region is mapped; `owner` belongs to the
     * connection. Returns 0, or the error with which the connection is closed. NULL: every region
     * is mapped. */
    int (*may_lend)(void *owner, uint64_t bytes);
};

/* Opens a fabric. `kind`: "shm" or "ofi" (test/fabric_mem opens "mem", because it needs a simulated
 * network). The first "ofi" of a process loads libfabric, as fabric_load(). Returns 0, -EINVAL for
 * an unknown kind, -ENOSYS if the provider is missing, -ELIBACC or -ELIBBAD if libfabric is, or
 * -ENOMEM. */
int fabric_open(const char *kind, const struct fabric_options *options, struct fabric **ret_fabric);

/* Loads the library that this kind of fabric needs, which takes 0.3 s for the first "ofi". A later
 * fabric_open() in a place that must not wait then takes no such time. Any thread may call this
 * function. Returns 0 or an error of fabric_open(). */
int fabric_load(const char *kind);
/* Makes each later fork() wait for the end of a load. If a caller of fabric_open() holds a lock
 * which a handler of pthread_atfork() takes, register the handler after this call: it then
 * runs first. */
void fabric_watch_forks(void);

/* Closes all connections without further events, and frees the fabric. NULL is allowed. */
void fabric_close(struct fabric *f);

const char *fabric_kind(const struct fabric *f);

/* Returns a line for the log with provider, domain and address, such as "ofi: provider tcp, domain
 * eth0, ...". */
const char *fabric_describe(const struct fabric *f);

/* Listens for connections. `address`: for shm "@name", an abstract Unix socket in the network
 * namespace of this host; for ofi "host:port" or "[v6]:port", with port 0 for any free port; for
 * mem any name. `ret_address` (FABRIC_ADDRESS_BYTES_MAX bytes): the address for peers. Returns 0,
 * -EADDRINUSE, -EADDRNOTAVAIL or -EINVAL. */
int fabric_listen(struct fabric *f, const char *address, char *ret_address);

/* Starts to connect, without waiting. The event OPEN or CLOSED follows. `ticket` is copied. Returns
 * 0 or a negative errno. -ECONNREFUSED: there is no listener, which only shm detects at once. */
int fabric_connect(struct fabric *f, const char *address, const void *ticket, size_t ticket_bytes,
                   void *owner, struct fabric_conn **ret_conn);

/* Accepts or refuses a REQUEST, in the same or a later poll. The ticket's bytes are valid until the
 * next poll. After a refusal the connection is freed, and no event follows. `reason`: positive
 * errno. */
int fabric_accept(struct fabric_conn *c, void *owner);
void fabric_refuse(struct fabric_conn *c, int reason);
/* Adds the connection to a group, which takes turns with other groups. The group must exist until
 * CLOSED. Called directly after fabric_accept(). Does nothing for a transport without turns. */
void fabric_join_group(struct fabric_conn *c, struct fabric_group *group);

/* Begins to close the connection. Each posted operation still has its READ or WRITTEN event,
 * usually with an error. CLOSED follows when no operation accesses local memory any more. The peer
 * also receives CLOSED. A second call does nothing. */
void fabric_disconnect(struct fabric_conn *c);
/* Worker: disconnects from a lane that is lost but may still write (W5). CLOSED follows when the
 * lane can no longer write: it has closed its end, or its process has ended. Over shared memory,
 * the process is killed after FABRIC_FENCE_NS. If the kernel does not permit the kill, CLOSED
 * follows when the process ends. */
#define FABRIC_FENCE_NS (250 * NS_PER_MS)
void fabric_fence(struct fabric_conn *c);
/* Worker: disconnects from a lane that is not lost. CLOSED follows when the lane has closed its
 * end, without a time limit. No process is killed. If the lane is lost before CLOSED, the worker
 * may call fabric_fence(). */
void fabric_leave(struct fabric_conn *c);

/* Returns the peer's address for texts, such as "pid 4242 uid 0" or "10.0.0.3:51234". */
const char *fabric_peer(const struct fabric_conn *c);
/* Returns the number of the peer's process over shm, or 0 for other transports. */
int fabric_peer_pid(const struct fabric_conn *c);

/* Sends a message of header and payload. The header is copied (at most FABRIC_MESSAGE_BYTES_MAX).
 * The payload is not copied. It must be in a region that is lent on this connection, and must not
 * change until the peer has answered; the commit rule (W4) guarantees this for lent memory.
 * Messages of a connection arrive in order, and after the writes that were posted before them.
 * Returns 0, -EAGAIN if the queue is full (ROOM follows), -ECONNRESET or -EMSGSIZE. shm refuses
 * payloads with -EMSGSIZE, because the peer maps the memory. */
int fabric_send(struct fabric_conn *c, const void *header, size_t header_bytes, const void *payload,
                size_t payload_bytes);

/* Returns the buffer of a MESSAGE event to the fabric. Called once for each such event. A
 * connection has only two receive buffers (W6), so a caller should keep at most one. */
void fabric_message_done(struct fabric_conn *c, const void *data);
/* Returns the number of MESSAGE buffers that the caller may keep without preventing the next
 * message of the connection. */
int fabric_messages_held_max(const struct fabric *f);

/* Worker: lends a region to the peer under `id`. The peer receives REGION before any later message.
 * A region may be lent on several connections. Returns 0 or a negative errno; -ENOTSUP over shm if
 * region_create() has not created the memory. */
int fabric_lend(struct fabric_conn *c, const struct region *region, uint32_t id);
/* Worker: ends the lending of a region that no lane needs any more. */
void fabric_withdraw(struct fabric_conn *c, uint32_t id);

/* Lane: returns the address of `bytes` bytes at `offset` of region `id` if the peer's memory is
 * mapped into this process. Otherwise, and for an unknown region or a range out of bounds, returns
 * NULL; fabric_region_bytes() returns whether the region is known, and its length. The address is
 * valid until the next fabric_poll(), which may unmap the region. */
void *fabric_map(struct fabric_conn *c, uint32_t id, uint64_t offset, size_t bytes);
/* Returns whether fabric_map() returns a pointer for every region that a peer lends. */
bool fabric_maps(const struct fabric *f);
/* Lane: returns whether all bytes read through fabric_map() until now came from the peer. False: a
 * page was missing and was read as zeros (S8); CLOSED follows. Must be called before a result of
 * these bytes is sent. */
bool fabric_is_sound(const struct fabric_conn *c);
/* Lane: returns whether all memory lent until now can be accessed without page faults. Another
 * thread accesses the pages in advance, with lower priority than it maps pages for which a record
 * waits. */
bool fabric_is_warm(const struct fabric_conn *c);
/* Returns the bytes of a lent region; 0: no region has this id. */
uint64_t fabric_region_bytes(const struct fabric_conn *c, uint32_t id);

/* Registers memory that fabric_read() and fabric_write() use locally (a lane's slots). Peers cannot
 * access it. shm and mem need no registration, and do nothing. */
int fabric_pool_register(struct fabric *f, void *base, size_t bytes);
/* Ends the registration. Called before the memory is freed, when no operation uses the memory any
 * more. The function does nothing for memory that is not registered. */
void fabric_pool_unregister(struct fabric *f, void *base);

/* Lane: posts a read from, or a write to, the peer's region. Returns 0, -EFAULT if the range is out
 * of bounds, or -EAGAIN if the queue is full (ROOM follows). Each successful call is followed by
 * one event READ or WRITTEN. Operations of a connection are executed in the order of posting, with
 * one exception: a read may return old bytes if the WRITTEN of an earlier short write to these
 * bytes has not been returned yet. */
int fabric_read(struct fabric_conn *c, uint32_t id, uint64_t offset, void *local, size_t bytes,
                void *context);
int fabric_write(struct fabric_conn *c, uint32_t id, uint64_t offset, const void *local,
                 size_t bytes, void *context);
/* Like fabric_write(), but the peer also receives WORD as soon as its memory has these bytes and
 * all bytes that were written before on this connection. */
int fabric_write_word(struct fabric_conn *c, uint32_t id, uint64_t offset, const void *local,
                      size_t bytes, uint32_t word, void *context);
/* Sends WORD without bytes, for results that were stored through fabric_map(), and for barriers.
 * Returns 0 if WRITTEN follows, 1 if the peer already has the word and no event follows, or a
 * negative errno. */
int fabric_notify(struct fabric_conn *c, uint32_t word, void *context);

/* Makes progress, and returns up to `events_max` events. The result is their number, never an
 * error: an error of a connection is in its CLOSED event. Each peer is woken once for all
 * operations since the last poll or flush. */
int fabric_poll(struct fabric *f, struct fabric_event *events, int events_max);
/* Sends delayed operations, and wakes the peers. A fabric may delay an operation until the next
 * flush, poll or arm, in order to send several together. */
void fabric_flush(struct fabric *f);

/* Descriptor or bell on which a thread sleeps until an event arrives. fabric_arm() sets either the
 * descriptor or the bell. */
struct fabric_wait {
    int fd;         /* if >= 0: sleep in epoll or poll until readable */
    uint32_t *bell; /* otherwise: sleep on this futex (not private) while *bell == bell_value */
    uint32_t bell_value;
};
/* Announces that the caller will sleep. Returns 0 if the caller may sleep on `ret_wait`, or -EAGAIN
 * if work is pending and the caller has to poll again. No wake-up is lost: a peer publishes work,
 * executes a fence and then reads the sleep flag; the caller sets the flag, executes a fence and
 * then checks for work (W8). The next poll clears the flag. */
int fabric_arm(struct fabric *f, struct fabric_wait *ret_wait);

/* Closes the inherited descriptors in a forked child. Shared memory is not changed. */
void fabric_abandon_in_child(struct fabric *f);

#endif
