/* Structs of fabric_ofi: fabric, connection, and posted operations. Only svc/fabric/ofi and its
 * tests include this header. */
#ifndef GRADPOOL_FABRIC_OFI_PROVIDER_TYPES_H
#define GRADPOOL_FABRIC_OFI_PROVIDER_TYPES_H

#include "svc/base/list.h"
#include "svc/fabric/fabric_ops.h"
#include "svc/fabric/ofi/message/hello.h"
#include "svc/fabric/ofi/message/message.h"
#include "svc/fabric/ofi/provider/memory.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <stdbool.h>
#include <stdint.h>

#define OFI_RECEIVES 2
/* Maximum numbers of posted operations. Their sum is the length of the send queue that names.c
 * requests from a provider. */
#define OFI_SENDS_MAX 64
#define OFI_TRANSFERS_MAX 192
#define OFI_PACKS 8
/* Maximum bytes of a pack with its frame, and of an item in it without the header (O13). */
#define OFI_PACK_BYTES (16u << 10)
#define OFI_PACKED_BYTES_MAX 2048
#define OFI_COMPLETIONS_A_READ 16
/* Bytes of a send buffer: the longest message without a payload. */
#define OFI_SEND_BYTES (sizeof(struct ofi_frame) + FABRIC_MESSAGE_BYTES_MAX)
/* Time in which the provider has to end posted operations. Afterwards the connection is closed in
 * any case. */
#define OFI_CLOSE_NS (1 * NS_PER_S)

enum ofi_op_kind { OFI_OP_RECEIVE, OFI_OP_SEND, OFI_OP_PACK, OFI_OP_READ, OFI_OP_WRITE };

/* A posted operation. The provider receives a pointer to its first member as context
 * (FI_CONTEXT). */
struct ofi_op {
    struct fi_context provider;
    enum ofi_op_kind kind;
    bool is_asked; /* send that has requested a completion (O10) */
    unsigned held; /* number of messages in a receive that the caller has not returned */
    int error;     /* error of a packed write that has ended and is not reported yet */
    uint8_t *buffer;
    void *context;
    struct ofi_op *next_free; /* next free slot, or next write in a pack */
};

/* Small messages and writes that are sent as one message. Used from the first item until the send
 * has ended. */
struct ofi_pack {
    struct ofi_op op; /* first member, so that the pack is found from its operation */
    size_t bytes;
    uint32_t items;
    bool is_posted;
    struct ofi_op *writes, **writes_end; /* writes that end together with the pack */
};

/* The peer's pack that is being read. */
struct ofi_unpacking {
    struct ofi_op *op; /* NULL: no pack */
    const uint8_t *at;
    size_t left;
};

/* A region of the peer; bytes 0: no region. */
struct ofi_foreign {
    uint64_t bytes, address, key;
};

enum ofi_phase {
    OFI_REQUESTED, /* a peer has requested a connection; there is no endpoint yet */
    OFI_OPENING,   /* fi_connect() or fi_accept() was called; FI_CONNECTED has not arrived */
    OFI_OPEN,
    OFI_LINGERING, /* fabric_disconnect() was called; posted sends still complete */
    OFI_ENDING,    /* the socket is shut down; posted operations end */
    OFI_GONE,      /* closed, and CLOSED was reported; the next poll frees the connection */
};

struct ofi_place;
struct ofi_turns;

struct ofi_fabric {
    struct fabric base;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_eq *eq;
    struct ofi_listener *listener; /* NULL: the fabric does not listen */
    int epoll_fd, eq_fd, timer_fd;
    bool is_eq_armed;  /* the event queue is empty; its descriptor reports the next event (O5) */
    uint64_t timer_ns; /* time at which the timer fires; 0: not set */
    uint64_t landed_flags; /* flags for writes (O4) */
    uint32_t payload_bytes_max;
    char *interface_name; /* NULL: any */
    struct ofi_memory *memory;
    struct list conns;       /* linked by in_fabric: connections except those in `gone` */
    struct ofi_turns *turns; /* connections whose queue is not armed (O5), in turns (O35) */
    /* linked by in_bursts: connections with small operations in this burst (O13) */
    struct list bursts;
    struct list gone; /* linked by in_fabric */
    char description[256];
};

struct ofi_conn {
    struct fabric_conn base;
    struct list in_fabric, in_bursts;
    struct ofi_place *place; /* place in the turns of polls */
    enum ofi_phase phase;
    void *owner;
    int error;        /* error of the CLOSED event */
    uint32_t reason;  /* reason of a refusal, for the CLOSED event */
    bool is_accepted; /* the peer has connected to this end */
    bool is_ours;     /* fabric_disconnect() was called; only CLOSED will be reported */
    bool peer_left;   /* GOODBYE has arrived */
    bool has_left;    /* GOODBYE was posted */
    bool is_guarded;  /* the peer's bytes are checked (O12) */
    bool is_shut;     /* the endpoint has ended, and the provider no longer uses the connection's
                       * memory */
    bool is_due;      /* the next poll has work for this connection, and no descriptor reports it */
    bool wants_room, has_room;
    uint64_t deadline_ns; /* in phases LINGERING and ENDING */

    struct fi_info *request;     /* in phase REQUESTED */
    struct ofi_hello_said hello; /* hello of the peer */

    struct fid_ep *ep;
    struct fid_cq *cq;
    /* libfabric's socket; -1: none or unknown. Closed here only in a forked child */
    int socket_fd;

    uint8_t *buffers;
    struct fid_mr *buffers_mr; /* NULL: the provider requires no registration */
    size_t receive_bytes;
    struct ofi_op receives[OFI_RECEIVES], sends[OFI_SENDS_MAX], transfers[OFI_TRANSFERS_MAX];
    struct ofi_op *free_transfers;
    /* The sends from sends_tail to sends_head may be in progress, and sends_asked of these sends
     * have requested a completion. */
    unsigned sends_head, sends_tail, sends_asked;
    unsigned transfers_posted, receives_posted, packs_posted;

    struct ofi_pack packs[OFI_PACKS];
    struct ofi_pack *pack; /* pack for the next small operation; NULL: none is open */
    unsigned burst;        /* number of small operations since the last burst ended */
    /* packed writes that have ended and are not reported yet */
    struct ofi_op *written, **written_end;
    struct ofi_unpacking unpacking;
    /* Completions from the queue, of which the first entries_told entries were reported. */
    struct fi_cq_data_entry entries[OFI_COMPLETIONS_A_READ];
    size_t entries_count, entries_told;

    struct ofi_region *lent[FABRIC_REGIONS_MAX];
    uint64_t withdraws; /* bit i: the WITHDRAW of region i is still to be sent */
    struct ofi_foreign foreign[FABRIC_REGIONS_MAX];
    char peer[64];
};

/* Events of one poll. The batch must have room when an event is added. */
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

#endif
