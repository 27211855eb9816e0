/* A connection of fabric_ofi: endpoint, completion queue, buffers and what is posted on them.
 * ofi_conn.c makes and ends it, ofi_transfer.c, ofi_send.c and ofi_pack.c move data over it,
 * fabric_ofi.c polls it. */
#ifndef GRADPOOL_WIRE_OFI_CONN_H
#define GRADPOOL_WIRE_OFI_CONN_H

#include "svc/base/list.h"
#include "svc/wire/fabric_ops.h"
#include "svc/wire/ofi_hello.h"
#include "svc/wire/ofi_item.h"
#include "svc/wire/ofi_memory.h"
#include "svc/wire/ofi_names.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <stdbool.h>
#include <stdint.h>

#define OFI_RECEIVES 2
/* Together what ofi_names.c asks of a provider's send queue. */
#define OFI_SENDS_MAX 64
#define OFI_TRANSFERS_MAX 192
#define OFI_PACKS 8
/* Of a message of small things, its frame included; and of one of them, beside its header (O13). */
#define OFI_PACK_BYTES (16u << 10)
#define OFI_PACKED_BYTES_MAX 2048
#define OFI_COMPLETIONS_A_READ 16
/* Of a send buffer: the longest message that has no payload. */
#define OFI_SEND_BYTES (sizeof(struct ofi_frame) + FABRIC_MESSAGE_BYTES_MAX)
/* How long a connection may take to give back what was posted before it is closed regardless. */
#define OFI_CLOSE_NS (1 * NS_PER_S)

/* --- on the wire (little endian) ------------------------------------------------------------- */

enum ofi_message_kind {
    OFI_MESSAGE_USER = 1,     /* header and payload of fabric_send() follow */
    OFI_MESSAGE_LEND = 2,     /* value: region id; struct ofi_lend follows */
    OFI_MESSAGE_WITHDRAW = 3, /* value: region id */
    OFI_MESSAGE_NOTIFY = 4,   /* value: word */
    OFI_MESSAGE_GOODBYE = 5,  /* the end that follows is meant */
    OFI_MESSAGE_PACK = 6,     /* value: how many items follow, each padded to eight bytes */
};

struct ofi_frame {
    uint32_t kind;
    uint32_t value;
};

struct ofi_lend {
    uint64_t bytes;
    uint64_t address; /* of the first byte: virtual, or 0 (FI_MR_VIRT_ADDR or not) */
    uint64_t key;
};

/* --- state ----------------------------------------------------------------------------------- */

enum ofi_op_kind { OFI_OP_RECEIVE, OFI_OP_SEND, OFI_OP_PACK, OFI_OP_READ, OFI_OP_WRITE };

/* Something posted. Its first member is the context the provider is given (FI_CONTEXT). */
struct ofi_op {
    struct fi_context provider;
    enum ofi_op_kind kind;
    bool is_asked; /* a send that will be told of when it has left (O10) */
    unsigned held; /* messages in a receive that the caller has */
    int error;     /* of a packed write that is over and not told yet */
    uint8_t *buffer;
    void *context;
    struct ofi_op *next_free; /* or the next write of a pack */
};

/* Small things gathered into one message, or on their way in it. */
struct ofi_pack {
    struct ofi_op op; /* first: found again by it */
    size_t bytes;
    uint32_t items;
    bool is_posted;
    struct ofi_op *writes, **writes_end; /* over when it is */
};

/* A pack of the peer's that is being taken apart. */
struct ofi_unpacking {
    struct ofi_op *op; /* NULL: none */
    const uint8_t *at;
    size_t left;
};

/* A region of the peer; bytes 0: none. */
struct ofi_foreign {
    uint64_t bytes, address, key;
};

enum ofi_phase {
    OFI_REQUESTED, /* a peer asks; no endpoint yet */
    OFI_OPENING,   /* fi_connect or fi_accept done, FI_CONNECTED awaited */
    OFI_OPEN,
    OFI_LINGERING, /* fabric_disconnect: sends may still leave */
    OFI_ENDING,    /* cut; what is posted comes back */
    OFI_GONE,      /* closed and told; freed when the next poll begins */
};

struct ofi_fabric {
    struct fabric base;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_eq *eq;
    struct fid_pep *listener;
    int epoll_fd, eq_fd, timer_fd;
    struct ofi_door *door; /* NULL: not listening, or without sockets (RDMA) */
    bool is_eq_armed;      /* quiet: its descriptor fires when it has something (O5) */
    unsigned polls_without_look;
    uint64_t timer_ns;     /* when the timer fires; 0: it is not set */
    uint64_t landed_flags; /* O4 */
    uint32_t payload_bytes_max;
    char *interface_name; /* NULL: any */
    struct ofi_memory memory;
    struct list conns;  /* by in_fabric: every connection that is not gone */
    struct list active; /* by in_active: those whose queue is not armed (O5) */
    struct list bursts; /* by in_bursts: those that something small was posted on (O13) */
    struct list gone;   /* by in_fabric */
    char description[256];
};

struct ofi_conn {
    struct fabric_conn base;
    struct list in_fabric, in_active, in_bursts;
    enum ofi_phase phase;
    void *owner;
    int error;        /* what CLOSED will say */
    uint32_t reason;  /* of a refusal, likewise */
    bool is_accepted; /* the peer asked, we answered: what it sends is checked (O12) */
    bool is_ours;     /* fabric_disconnect was called: only CLOSED is told */
    bool peer_left;   /* GOODBYE has come */
    bool has_left;    /* ours has been posted */
    bool is_guarded;  /* what its peer writes is checked (O12) */
    bool is_shut;     /* the provider has given up the endpoint: nothing is in its hands any more */
    bool is_due;      /* the next poll has something to do here that no descriptor tells */
    bool wants_room, has_room;
    uint64_t deadline_ns; /* LINGERING, ENDING */

    struct fi_info *request;     /* REQUESTED */
    struct ofi_hello_said hello; /* the peer's */

    struct fid_ep *ep;
    struct fid_cq *cq;
    int cq_fd;
    int socket_fd; /* libfabric's; -1: none or not known. Never closed here but in a forked child */

    uint8_t *buffers;
    struct fid_mr *buffers_mr; /* NULL where none is needed */
    size_t receive_bytes;
    struct ofi_op receives[OFI_RECEIVES], sends[OFI_SENDS_MAX], transfers[OFI_TRANSFERS_MAX];
    struct ofi_op *free_transfers;
    /* Sends from tail on to head may be on their way, sends_asked of them will be told of. */
    unsigned sends_head, sends_tail, sends_asked;
    unsigned transfers_posted, receives_posted, packs_posted;

    struct ofi_pack packs[OFI_PACKS];
    struct ofi_pack *pack;                 /* the one that takes what comes; NULL: none has begun */
    unsigned burst;                        /* small things since the last one ended */
    struct ofi_op *written, **written_end; /* packed writes that are over, not told yet */
    struct ofi_unpacking unpacking;
    /* Completions read from the queue, not told yet. */
    struct fi_cq_data_entry entries[OFI_COMPLETIONS_A_READ];
    size_t entries_count, entries_told;

    struct ofi_region *lent[FABRIC_REGIONS_MAX];
    uint64_t withdraws; /* bit per id: told to the peer as soon as there is room */
    struct ofi_foreign foreign[FABRIC_REGIONS_MAX];
    char peer[64];
};

/* Where poll puts events. Never asked for more than is left. */
struct ofi_batch {
    struct fabric_event *events;
    int events_max;
    int count;
};

static inline bool ofi_batch_is_full(const struct ofi_batch *b)
{
    return b->count == b->events_max;
}

static inline struct ofi_conn *ofi_conn_of(struct fabric_conn *c) { return (struct ofi_conn *)c; }
static inline struct ofi_fabric *ofi_fabric_of(const struct ofi_conn *c)
{
    return (struct ofi_fabric *)c->base.fabric;
}

/* --- ofi_conn.c ------------------------------------------------------------------------------ */

int ofi_conn_connect(struct ofi_fabric *f, const char *address, const void *ticket,
                     size_t ticket_bytes, void *owner, struct ofi_conn **ret_conn);
/* A peer's request; takes `info` over. NULL: malformed or out of memory, and it was rejected. */
struct ofi_conn *ofi_conn_request(struct ofi_fabric *f, struct fi_info *info, const void *data,
                                  size_t data_bytes);
int ofi_conn_accept(struct ofi_conn *c, void *owner);
void ofi_conn_refuse(struct ofi_conn *c, int reason);
/* FI_CONNECTED: true when the connection is open now and OPEN is to be told. */
bool ofi_conn_connected(struct ofi_conn *c, const void *data, size_t data_bytes);
/* FI_SHUTDOWN or an error of the endpoint. */
void ofi_conn_shut(struct ofi_conn *c, int error, uint32_t reason);
void ofi_conn_disconnect(struct ofi_conn *c);
/* The connection is broken from our side of view: `error` is what CLOSED will say. */
void ofi_conn_fail(struct ofi_conn *c, int error);
/* Something was posted, or the queue's descriptor has fired: polls read the queue until it is armed
 * again (O5). */
void ofi_conn_disarm(struct ofi_conn *c);
/* The same, and there is work: the next poll must come before any sleep. */
void ofi_conn_activate(struct ofi_conn *c);
/* Makes the timer fire at `when_ns` or earlier: for connections that have a deadline. */
void ofi_timer_set(struct ofi_fabric *f, uint64_t when_ns);
/* Moves a connection on that is LINGERING or ENDING; may put CLOSED into the batch. */
void ofi_conn_advance(struct ofi_conn *c, uint64_t now_ns, struct ofi_batch *batch);
/* Closes what libfabric holds; no event. Then only ofi_conn_free() is left to call. */
void ofi_conn_close(struct ofi_conn *c);
void ofi_conn_free(struct ofi_conn *c);

/* --- ofi_listen.c ---------------------------------------------------------------------------- */

/* As fabric_listen(). */
int ofi_listen(struct ofi_fabric *f, const char *address, char *ret_address);

/* --- ofi_transfer.c -------------------------------------------------------------------------- */

/* Lays out buffers and posts the receives on a new endpoint. */
int ofi_transfer_prepare(struct ofi_conn *c);
void ofi_transfer_message_done(struct ofi_conn *c, const void *data);
/* A receive whose messages are all done. */
void ofi_transfer_repost(struct ofi_conn *c, struct ofi_op *op);
int ofi_transfer_read(struct ofi_conn *c, uint32_t id, uint64_t offset, void *local, size_t bytes,
                      void *context);
/* `word` NULL: none. */
int ofi_transfer_write(struct ofi_conn *c, uint32_t id, uint64_t offset, const void *local,
                       size_t bytes, const uint32_t *word, void *context);
int ofi_transfer_notify(struct ofi_conn *c, uint32_t word, void *context);
/* Turns completions into events. True: the queue is empty; false: the batch is full. */
bool ofi_transfer_drain(struct ofi_conn *c, struct ofi_batch *batch);

/* What a verb returns: on a connection that is not open; when all slots are taken (ROOM follows);
 * when the provider refused a post. */
int ofi_refuse_verb(const struct ofi_conn *c);
int ofi_no_room(struct ofi_conn *c);
int ofi_post_failed(struct ofi_conn *c, int r);
/* Of the connection's own buffers, for posts; NULL where none is needed. */
void *ofi_buffers_descriptor(const struct ofi_conn *c);

/* --- ofi_send.c ------------------------------------------------------------------------------ */

int ofi_send(struct ofi_conn *c, const void *header, size_t header_bytes, const void *payload,
             size_t payload_bytes);
int ofi_send_goodbye(struct ofi_conn *c);
int ofi_send_lend(struct ofi_conn *c, const struct region *region, uint32_t id);
void ofi_send_withdraw(struct ofi_conn *c, uint32_t id);
/* Those that found no room. */
void ofi_send_withdraws(struct ofi_conn *c);
/* A completion of a send: it and all before it have left. */
void ofi_send_over(struct ofi_conn *c, struct ofi_op *op);

/* Appends an event of this connection; the batch must have space. */
struct fabric_event *ofi_emit(struct ofi_batch *batch, struct ofi_conn *c,
                              enum fabric_event_kind kind);

#endif
