/* Internals of fabric_mem: ends of connections, and packets. A connection has two ends. Packets
 * wait in the inbox of the receiving end until their time. */
#ifndef GRADPOOL_TEST_FABRIC_MEM_CONN_H
#define GRADPOOL_TEST_FABRIC_MEM_CONN_H

#include "svc/base/list.h"
#include "svc/fabric/fabric_ops.h"
#include "svc/fabric/region.h"
#include "test/fabric_mem/fabric_mem.h"

/* receive buffers of one end of a connection (W6) */
#define MEM_MESSAGES_MAX 2
#define MEM_QUEUE_DEPTH_DEFAULT 64

struct mem_network {
    struct mem_network_options options;
    uint64_t now_ns;
    uint64_t random;       /* state of the random numbers */
    uint64_t packets;      /* number of packets sent, which orders packets with the same time */
    unsigned fabrics_made; /* number of fabrics created, for their names in messages */
    struct list fabrics;
};

/* Allocates zeroed memory. Without memory the process ends, because only tests use this fabric
 * (N9). */
void *mem_zalloc(size_t bytes);
/* Returns a nearly uniform number from 0 to `most`. */
uint64_t mem_network_draw(struct mem_network *n, uint64_t most);

struct mem_fabric {
    struct fabric base;
    struct mem_network *network;
    struct list node; /* node in network->fabrics */
    unsigned number;
    /* name at which the fabric listens; empty: none */
    char name[FABRIC_ADDRESS_BYTES_MAX];
    char text[96]; /* result of fabric_describe() */
    size_t payload_bytes_max;
    bool is_killed, is_stopped;
    uint64_t fault_in; /* number of posts until `fault`; 0: none */
    enum mem_fault fault;
    struct mem_counters counters;
    struct list conns;
    struct list events; /* struct mem_event: events that the caller has not received yet */
    uint32_t bell;      /* never used, because no other thread exists */
};

enum mem_packet_kind {
    MEM_REQUEST,
    MEM_ACCEPTED,
    MEM_REFUSED,
    MEM_FAREWELL,
    MEM_RESET,
    MEM_LEND,
    MEM_WITHDRAW,
    MEM_MESSAGE,
    MEM_READ,
    MEM_WRITE,
    MEM_WORD, /* bytes were written through a mapping of this region */
    MEM_DONE, /* answer to a read, with its bytes, or to a write */
};

/* A packet. Its data ends at the end of the allocation, so that a sanitizer detects a read
 * beyond it. */
struct mem_packet {
    struct list node;
    uint64_t due_ns;
    uint64_t number;
    enum mem_packet_kind kind;
    int error;
    uint32_t id; /* region */
    uint32_t word;
    bool has_word;
    bool is_torn; /* the sender ended during this write, so a part is missing */
    uint64_t offset;
    struct region region; /* MEM_LEND: the region for the receiver */
    size_t bytes;         /* number of bytes of data; for MEM_READ the number of requested bytes */
    unsigned char data[];
};

/* A posted read or write, until the caller receives its event. Answers arrive in the order of
 * posts. */
struct mem_op {
    struct list node;
    enum fabric_event_kind kind;
    void *context;
    void *local; /* READ: destination; WRITTEN: source */
    size_t bytes;
    uint64_t digest; /* digest of the bytes to write */
};

struct mem_event {
    struct list node;
    struct fabric_event event;
};

enum mem_conn_state {
    MEM_ASKING, /* this end has requested a connection */
    MEM_ASKED,  /* the peer has requested a connection; `is_surfaced`: the request was reported */
    MEM_OPEN,
    MEM_ENDED,   /* CLOSED is due, or was reported */
    MEM_RETIRED, /* freed at the start of the next poll */
};

struct mem_conn {
    struct fabric_conn base;
    struct mem_conn *peer; /* NULL: the other end was freed */
    struct list node;      /* node in fabric->conns */
    enum mem_conn_state state;
    bool is_surfaced;
    bool wants_room;
    void *owner;
    uint32_t posted; /* messages and operations in progress */
    int held;        /* number of received messages that the caller has not returned */
    struct list inbox;
    uint64_t inbox_due_ns; /* time of the last packet in the inbox */
    struct list ops;
    struct list messages;                   /* packets of these messages */
    struct region lent[FABRIC_REGIONS_MAX]; /* lent by this end */
    /* Memory lent by the peer; on a mapped network the mappings of this end. */
    struct region regions[FABRIC_REGIONS_MAX];
    unsigned char ticket[FABRIC_TICKET_BYTES_MAX];
    size_t ticket_bytes;
    char peer_text[32];
};

static inline struct mem_conn *mem_conn(struct fabric_conn *c) { return (struct mem_conn *)c; }
static inline struct mem_fabric *mem_fabric_of(const struct mem_conn *c)
{
    return (struct mem_fabric *)c->base.fabric;
}

struct mem_conn *mem_conn_create(struct mem_fabric *f, enum mem_conn_state state);
/* Frees this end with its packets and regions. The other end is not informed. */
void mem_conn_destroy(struct mem_conn *c);

/* Allocates a packet with `bytes` bytes of data, which the caller fills in. */
struct mem_packet *mem_packet_create(enum mem_packet_kind kind, size_t bytes);
/* Sends a packet, which arrives at the other end after a delay. Owns the packet from then on. */
void mem_conn_send(struct mem_conn *c, struct mem_packet *p);
/* Sends a packet without data. */
void mem_conn_tell(struct mem_conn *c, enum mem_packet_kind kind);

/* Returns the first packet of the inbox if it has arrived by now and can be received; otherwise
 * NULL. */
struct mem_packet *mem_conn_due(struct mem_conn *c);
void mem_conn_take(struct mem_conn *c, struct mem_packet *p);

/* Appends an event; the caller sets the fields of its kind. */
struct fabric_event *mem_conn_happened(struct mem_conn *c, enum fabric_event_kind kind);
/* Completes the oldest operation. `data`: data of a read if `error` is 0. */
void mem_conn_finish_op(struct mem_conn *c, int error, const void *data);
/* Closes this end: fails its posted operations, then reports CLOSED. The other end is not
 * informed. */
void mem_conn_end(struct mem_conn *c, int error, uint32_t reason);
/* Ends the connection regularly, from this end. */
void mem_conn_leave(struct mem_conn *c);
/* Closes both ends with -ECONNRESET, after the arrival of some of this end's packets in flight. */
void mem_conn_break(struct mem_conn *c);

uint64_t mem_digest(const void *bytes, size_t count);
/* Returns the address of `bytes` bytes at `offset` of a region; NULL if they are not within it. */
void *mem_region_at(const struct region *regions, uint32_t id, uint64_t offset, size_t bytes);

/* Verbs of fabric.h for a connection that may be open (verbs.c). */
int mem_verb_send(struct fabric_conn *c, const void *header, size_t header_bytes,
                  const void *payload, size_t payload_bytes);
void mem_verb_message_done(struct fabric_conn *c, const void *data);
int mem_verb_messages_held_max(const struct fabric *f);
int mem_verb_lend(struct fabric_conn *c, const struct region *region, uint32_t id);
void mem_verb_withdraw(struct fabric_conn *c, uint32_t id);
void *mem_verb_map(struct fabric_conn *c, uint32_t id, uint64_t offset, size_t bytes);
uint64_t mem_verb_region_bytes(const struct fabric_conn *c, uint32_t id);
int mem_verb_pool_register(struct fabric *f, void *base, size_t bytes);
void mem_verb_pool_unregister(struct fabric *f, void *base);
int mem_verb_read(struct fabric_conn *c, uint32_t id, uint64_t offset, void *local, size_t bytes,
                  void *context);
int mem_verb_write(struct fabric_conn *c, uint32_t id, uint64_t offset, const void *local,
                   size_t bytes, void *context);
int mem_verb_write_word(struct fabric_conn *c, uint32_t id, uint64_t offset, const void *local,
                        size_t bytes, uint32_t word, void *context);
int mem_verb_notify(struct fabric_conn *c, uint32_t word, void *context);

#endif
