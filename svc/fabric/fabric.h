/* The transport seam: the verbs of a lane and a worker on a network or on shared memory.
 *
 * The server drives (svc/wire/README.md, W1): a worker announces with small messages and lends
 * regions; a lane reads gradients from and writes results into those regions. No worker ever holds
 * a key to server memory.
 *
 * A fabric belongs to one thread at a time. Nothing here blocks, and there are no callbacks: work
 * is posted, its outcome is an event of fabric_poll(). Every verb is safe on a connection whose
 * peer is gone: it returns -ECONNRESET, and the connection's last event is FABRIC_EVENT_CLOSED. */
#ifndef GRADPOOL_FABRIC_FABRIC_H
#define GRADPOOL_FABRIC_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fabric;
struct fabric_conn;
struct fabric_group;
struct region;

/* A ticket fits the connect data of a verbs device (W7). */
#define FABRIC_TICKET_BYTES_MAX 48
/* A message without payload fits one ring record of fabric_shm. */
#define FABRIC_MESSAGE_BYTES_MAX 120
#define FABRIC_ADDRESS_BYTES_MAX 128
/* Regions that one connection may lend; ids are 0 .. FABRIC_REGIONS_MAX-1, chosen by the worker. */
#define FABRIC_REGIONS_MAX 64

enum fabric_event_kind {
    FABRIC_EVENT_NONE,
    FABRIC_EVENT_REQUEST, /* a peer connects; data, bytes: its ticket. Accept or refuse it */
    FABRIC_EVENT_OPEN,    /* the connection may be used (both sides get it, once) */
    FABRIC_EVENT_MESSAGE, /* data, bytes: message and payload; to be given back, see
                             fabric_message_done() */
    FABRIC_EVENT_REGION,  /* the peer lends region `word` of `bytes` bytes (data is NULL) */
    FABRIC_EVENT_READ, /* a fabric_read() with this context is over; error 0: the bytes are here */
    FABRIC_EVENT_WRITTEN, /* a fabric_write() with this context is over; error 0: the bytes lie in
                             the peer's memory, not merely in a buffer on the way (W4) */
    FABRIC_EVENT_WORD,    /* worker side: a write or notify carrying `word` has landed whole */
    FABRIC_EVENT_ROOM,    /* a verb that returned -EAGAIN on this connection may be tried again */
    FABRIC_EVENT_CLOSED,  /* the last event of a connection. error: 0 orderly, -ECONNREFUSED and
                             `word` the peer's reason (positive errno), -ECONNRESET, ... The
                             connection is freed when the next fabric_poll() begins. */
};

struct fabric_event {
    enum fabric_event_kind kind;
    int error; /* 0 or negative errno */
    struct fabric_conn *conn;
    void *owner;   /* as given to fabric_connect() or fabric_accept(); NULL for REQUEST */
    void *context; /* READ, WRITTEN: as posted */
    const void *data;
    size_t bytes;
    uint32_t word;
    uint64_t spent_ns; /* by another thread, to map the pages that it names */
};

struct fabric_options {
    const char *interface_name;   /* ofi: listen and connect through this interface; NULL: any */
    const char *provider;         /* ofi: NULL means "tcp" */
    size_t payload_bytes_max;     /* longest payload behind a message; 0: none is taken */
    const uint32_t *allowed_uids; /* shm listener: peers' uids besides our own */
    size_t allowed_uids_count;
    uint64_t mapped_bytes_max; /* shm listener: most bytes one connection may lend; 0: 1 TiB */
    /* shm listener: called with a connection's owner before a region of it is mapped, within a
     * poll: 0, or the error with which the connection ends. NULL: every region is mapped. */
    int (*may_lend)(void *owner, uint64_t bytes);
};

/* `kind`: "shm" or "ofi" ("mem" is made by test/fabric_mem: it needs a network of its own).
 * Errors: -EINVAL unknown kind, -ENOSYS provider missing, -ENOMEM. */
int fabric_open(const char *kind, const struct fabric_options *options, struct fabric **ret_fabric);

/* Closes every connection without further events, and frees all. NULL is fine. */
void fabric_close(struct fabric *f);

const char *fabric_kind(const struct fabric *f);

/* One line for the log: provider, domain, address ("ofi: provider tcp, domain eth0, ..."). */
const char *fabric_describe(const struct fabric *f);

/* shm: "@name" (an abstract Unix socket: reachable in one network namespace of one host only).
 * ofi: "host:port" or "[v6]:port"; port 0 picks one. mem: any name.
 * `ret_address` (FABRIC_ADDRESS_BYTES_MAX bytes): the address for peers.
 * Errors: -EADDRINUSE, -EADDRNOTAVAIL, -EINVAL. */
int fabric_listen(struct fabric *f, const char *address, char *ret_address);

/* Starts to connect; returns at once. OPEN or CLOSED follows. -ECONNREFUSED at once without a
 * listener (shm: on this host). `ticket` is copied. */
int fabric_connect(struct fabric *f, const char *address, const void *ticket, size_t ticket_bytes,
                   void *owner, struct fabric_conn **ret_conn);

/* Answer to REQUEST, inside the same or a later poll; the ticket's bytes are valid until the next
 * poll. After a refusal the connection is gone, with no further event. `reason`: positive errno. */
int fabric_accept(struct fabric_conn *c, void *owner);
void fabric_refuse(struct fabric_conn *c, int reason);
/* Right after fabric_accept(): from now on the connection takes its turns with the group, which
 * must exist until CLOSED. No effect where a transport has no turns. */
void fabric_join_group(struct fabric_conn *c, struct fabric_group *group);

/* Begins to close: only READ or WRITTEN of each posted operation follows (with an error, mostly),
 * then CLOSED, when no operation touches local memory any more. The peer sees CLOSED too. Safe to
 * call twice. */
void fabric_disconnect(struct fabric_conn *c);
/* Worker side: disconnects from a lane that was lost, but may write on (W5). CLOSED comes once the
 * lane can write no longer: it has closed its end too, or its process has ended. Where memory is
 * shared, a process that has done neither after FABRIC_FENCE_NS is killed, if the kernel permits
 * it; else CLOSED waits for its end. */
#define FABRIC_FENCE_NS (250 * NS_PER_MS)
void fabric_fence(struct fabric_conn *c);
/* Worker side: disconnects from a lane that was not lost: CLOSED waits for the lane's end, however
 * long, and no process is killed. If the lane is lost before CLOSED, fabric_fence() may follow. */
void fabric_leave(struct fabric_conn *c);

/* The other end, for messages to people: "pid 4242 uid 0" or "10.0.0.3:51234". */
const char *fabric_peer(const struct fabric_conn *c);
/* shm: the peer's process id; 0 where the transport does not know it. */
int fabric_peer_pid(const struct fabric_conn *c);

/* Sends header (copied; at most FABRIC_MESSAGE_BYTES_MAX) and payload (not copied: it must stay
 * unchanged until the peer has answered; lent memory does by the commit rule, W4). Messages of a
 * connection arrive in order, and after the writes posted before them. `payload` must lie in a
 * region lent on this connection. shm: payloads are refused with -EMSGSIZE (the peer maps it).
 * Errors: -EAGAIN queue full (ROOM follows), -ECONNRESET, -EMSGSIZE. */
int fabric_send(struct fabric_conn *c, const void *header, size_t header_bytes, const void *payload,
                size_t payload_bytes);

/* Gives the buffer of a MESSAGE event back; call it once for each such event. Until then the
 * buffer is one of the connection's two receives (W6): hold at most one. */
void fabric_message_done(struct fabric_conn *c, const void *data);
/* MESSAGE buffers of a connection that may be held while another message can still arrive. */
int fabric_messages_held_max(const struct fabric *f);

/* Worker side: lends a region to the peer under `id`; the peer gets REGION before any later
 * message. A region may be lent on many connections. shm needs memory made by region_create();
 * other memory is -ENOTSUP. */
int fabric_lend(struct fabric_conn *c, const struct region *region, uint32_t id);
/* Worker side: takes the region back, once no lane needs its contents any more. */
void fabric_withdraw(struct fabric_conn *c, uint32_t id);

/* Lane side: a pointer to `bytes` bytes of region `id` at `offset` when the peer's memory is local
 * to this process, else NULL. Out of bounds or unknown: NULL, too; fabric_region_bytes() shows
 * which. The pointer is good until the next fabric_poll(), which may take a WITHDRAW. */
void *fabric_map(struct fabric_conn *c, uint32_t id, uint64_t offset, size_t bytes);
/* Whether fabric_map() gives a pointer to every region that a peer lends. */
bool fabric_maps(const struct fabric *f);
/* Lane side: whether all bytes read through fabric_map() until now were the peer's. False: a page
 * could not be had, and was read as zeros (S8); CLOSED follows. To be called before any result of
 * these bytes is sent. */
bool fabric_is_sound(const struct fabric_conn *c);
/* Lane side: whether memory that was lent until now costs a lane no page fault any more. Pages
 * become warm on another thread, behind those that a record waits for. */
bool fabric_is_warm(const struct fabric_conn *c);
/* Bytes of a lent region, 0 when there is none with that id. */
uint64_t fabric_region_bytes(const struct fabric_conn *c, uint32_t id);

/* Memory that fabric_read() and fabric_write() will use locally (a lane's slots): registered once,
 * without remote rights. Not needed for shm and mem, where it does nothing. */
int fabric_pool_register(struct fabric *f, void *base, size_t bytes);
/* To be called before the memory is freed; no operation may use it any more. Unknown memory is no
 * error. */
void fabric_pool_unregister(struct fabric *f, void *base);

/* Lane side: posts a read from, or a write to, the peer's region. Bounds are checked first:
 * -EFAULT. One event READ or WRITTEN follows for each that returned 0. -EAGAIN: queue full (ROOM
 * follows). Operations of one connection are carried out in posting order; only a read may see the
 * bytes from before a short write that is not WRITTEN yet. */
int fabric_read(struct fabric_conn *c, uint32_t id, uint64_t offset, void *local, size_t bytes,
                void *context);
int fabric_write(struct fabric_conn *c, uint32_t id, uint64_t offset, const void *local,
                 size_t bytes, void *context);
/* As fabric_write(), and the peer gets WORD once these bytes, and all written before on this
 * connection, have landed. */
int fabric_write_word(struct fabric_conn *c, uint32_t id, uint64_t offset, const void *local,
                      size_t bytes, uint32_t word, void *context);
/* WORD without bytes, for results stored through fabric_map() and barriers. 0: WRITTEN follows; 1:
 * the word is with the peer already, and no event follows. */
int fabric_notify(struct fabric_conn *c, uint32_t word, void *context);

/* Makes progress, and takes up to `events_max` events. Returns their number, never an error: the
 * trouble of a connection is its CLOSED event. Wakes each peer once for all posts since the last
 * poll or flush (one doorbell a batch). */
int fabric_poll(struct fabric *f, struct fabric_event *events, int events_max);
/* Rings the doorbells now, and sends gathered posts: posts may wait for each other until the next
 * flush, poll or arm, to leave together. */
void fabric_flush(struct fabric *f);

/* The place to sleep on until an event comes. fabric_arm() sets either the descriptor or the bell.
 */
struct fabric_wait {
    int fd;         /* >= 0: sleep in epoll or poll until it is readable */
    uint32_t *bell; /* else: sleep by futex while *bell == bell_value (not a private futex) */
    uint32_t bell_value;
};
/* Announces that the caller is about to sleep. 0: it may sleep, on `ret_wait`; -EAGAIN: there is
 * work, poll again. Uses the pair "publish; fence; read sleeping" / "set sleeping; fence; read the
 * work" (W8). The next poll ends the announcement. */
int fabric_arm(struct fabric *f, struct fabric_wait *ret_wait);

/* In a forked child: closes the descriptors that the child inherited, touching nothing shared. */
void fabric_abandon_in_child(struct fabric *f);

#endif
