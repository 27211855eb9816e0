/* Owns the ends of connections of fabric_mem and the packets between them. An end gets information
 * about the other end only from packets; mapped memory is accessed directly (N3). */
#include "test/fabric_mem/conn.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* --- packets --------------------------------------------------------------------------------- */

struct mem_packet *mem_packet_create(enum mem_packet_kind kind, size_t bytes)
{
    struct mem_packet *p = mem_zalloc(sizeof *p + bytes);
    p->kind = kind;
    p->bytes = bytes;
    list_init(&p->node);
    return p;
}

/* Unmaps the region. The receiver has a separate mapping, which stays valid after the end of the
 * lender, as with fabric_shm. */
static void region_drop(const struct mem_network *n, struct region *region)
{
    if (n->options.is_mapped && region->base != NULL)
        munmap(region->base, region->bytes);
    *region = (struct region){0};
}

static void packet_destroy(const struct mem_network *n, struct mem_packet *p)
{
    list_remove(&p->node);
    region_drop(n, &p->region);
    free(p);
}

void mem_conn_send(struct mem_conn *c, struct mem_packet *p)
{
    struct mem_network *n = mem_fabric_of(c)->network;
    struct mem_conn *to = c->peer;
    if (to == NULL) {
        packet_destroy(n, p);
        return;
    }
    uint64_t spread_ns = n->options.delay_max_ns - n->options.delay_min_ns;
    p->due_ns = n->now_ns + n->options.delay_min_ns + mem_network_draw(n, spread_ns);
    if (p->due_ns < to->inbox_due_ns)
        p->due_ns = to->inbox_due_ns;
    to->inbox_due_ns = p->due_ns;
    p->number = n->packets++;
    list_append(&to->inbox, &p->node);
}

void mem_conn_tell(struct mem_conn *c, enum mem_packet_kind kind)
{
    mem_conn_send(c, mem_packet_create(kind, 0));
}

static void drop_packets(const struct mem_network *n, struct list *packets)
{
    list_for_each_safe (node, packets)
        packet_destroy(n, list_entry(node, struct mem_packet, node));
}

/* --- ends ------------------------------------------------------------------------------------ */

struct mem_conn *mem_conn_create(struct mem_fabric *f, enum mem_conn_state state)
{
    struct mem_conn *c = mem_zalloc(sizeof *c);
    fabric_conn_init(&c->base, &f->base);
    c->state = state;
    list_init(&c->inbox);
    list_init(&c->ops);
    list_init(&c->messages);
    list_append(&f->conns, &c->node);
    return c;
}

static void unlink_peer(struct mem_conn *c)
{
    if (c->peer != NULL)
        c->peer->peer = NULL;
    c->peer = NULL;
}

/* Deletes events that the caller has not received yet. With `keep_ops` events of operations
 * stay. */
static void drop_events(struct mem_conn *c, bool keep_ops)
{
    list_for_each_safe (node, &mem_fabric_of(c)->events) {
        struct mem_event *e = list_entry(node, struct mem_event, node);
        bool is_op = e->event.kind == FABRIC_EVENT_READ || e->event.kind == FABRIC_EVENT_WRITTEN;
        if (e->event.conn != &c->base || (is_op && keep_ops))
            continue;
        list_remove(node);
        free(e);
    }
}

void mem_conn_destroy(struct mem_conn *c)
{
    const struct mem_network *n = mem_fabric_of(c)->network;
    unlink_peer(c);
    drop_events(c, false);
    drop_packets(n, &c->inbox);
    drop_packets(n, &c->messages);
    list_for_each_safe (node, &c->ops)
        free(list_entry(node, struct mem_op, node));
    for (int i = 0; i < FABRIC_REGIONS_MAX; i++)
        region_drop(n, &c->regions[i]);
    list_remove(&c->node);
    free(c);
}

struct fabric_event *mem_conn_happened(struct mem_conn *c, enum fabric_event_kind kind)
{
    struct mem_event *e = mem_zalloc(sizeof *e);
    e->event.kind = kind;
    e->event.conn = &c->base;
    e->event.owner = c->owner;
    list_append(&mem_fabric_of(c)->events, &e->node);
    return &e->event;
}

void mem_conn_finish_op(struct mem_conn *c, int error, const void *data)
{
    struct list *first = list_first(&c->ops);
    assert(first != NULL);
    struct mem_op *op = list_entry(first, struct mem_op, node);
    if (error == 0 && op->kind == FABRIC_EVENT_READ && op->bytes > 0)
        memcpy(op->local, data, op->bytes);
    if (error == 0 && op->kind == FABRIC_EVENT_WRITTEN)
        mem_fabric_of(c)->counters.changed_early += mem_digest(op->local, op->bytes) != op->digest;
    struct fabric_event *event = mem_conn_happened(c, op->kind);
    event->context = op->context;
    event->error = error;
    list_remove(&op->node);
    free(op);
}

void mem_conn_end(struct mem_conn *c, int error, uint32_t reason)
{
    c->state = MEM_ENDED;
    unlink_peer(c);
    drop_packets(mem_fabric_of(c)->network, &c->inbox);
    while (!list_is_empty(&c->ops))
        mem_conn_finish_op(c, -ECONNRESET, NULL);
    struct fabric_event *closed = mem_conn_happened(c, FABRIC_EVENT_CLOSED);
    closed->error = error;
    closed->word = reason;
}

/* Returns whether this end belongs to a connection request that its fabric has not reported yet. */
static bool is_unseen(const struct mem_conn *c) { return c->state == MEM_ASKED && !c->is_surfaced; }

void mem_conn_leave(struct mem_conn *c)
{
    if (c->peer != NULL && is_unseen(c->peer))
        mem_conn_destroy(c->peer);
    mem_conn_tell(c, MEM_FAREWELL);
    drop_events(c, true);
    mem_conn_end(c, 0, 0);
}

/* Keeps the first `kept` packets. If the next packet is a write, a part of it arrives. */
static void cut_inbox(struct mem_network *n, struct list *inbox, uint64_t kept)
{
    bool is_first = true;
    list_for_each_safe (node, inbox) {
        struct mem_packet *p = list_entry(node, struct mem_packet, node);
        if (kept > 0) {
            kept--;
        } else if (is_first && p->kind == MEM_WRITE && p->bytes > 0) {
            is_first = false;
            p->is_torn = true;
            p->bytes = mem_network_draw(n, p->bytes - 1);
        } else {
            is_first = false;
            packet_destroy(n, p);
        }
    }
}

/* Closes the peer with -ECONNRESET, after some of the packets in transit have arrived. */
static void cut_peer(struct mem_conn *c)
{
    struct mem_network *n = mem_fabric_of(c)->network;
    struct mem_conn *peer = c->peer;
    uint64_t count = 0;
    if (peer == NULL)
        return;
    if (is_unseen(peer)) {
        mem_conn_destroy(peer);
        return;
    }
    list_for_each (node, &peer->inbox)
        count++;
    cut_inbox(n, &peer->inbox, mem_network_draw(n, count));
    mem_conn_tell(c, MEM_RESET);
    unlink_peer(c);
}

void mem_conn_break(struct mem_conn *c)
{
    cut_peer(c);
    mem_conn_end(c, -ECONNRESET, 0);
}

/* --- taking packets -------------------------------------------------------------------------- */

uint64_t mem_digest(const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    uint64_t digest = UINT64_C(0xcbf29ce484222325); /* the FNV-1a hash */
    for (size_t i = 0; i < count; i++)
        digest = (digest ^ at[i]) * UINT64_C(0x100000001b3);
    return digest;
}

void *mem_region_at(const struct region *regions, uint32_t id, uint64_t offset, size_t bytes)
{
    if (id >= FABRIC_REGIONS_MAX || regions[id].base == NULL)
        return NULL;
    if (offset > regions[id].bytes || bytes > regions[id].bytes - offset)
        return NULL;
    return (char *)regions[id].base + offset;
}

struct mem_packet *mem_conn_due(struct mem_conn *c)
{
    struct list *first = list_first(&c->inbox);
    if (first == NULL || (c->state == MEM_ASKED && c->is_surfaced))
        return NULL;
    struct mem_packet *p = list_entry(first, struct mem_packet, node);
    if (p->due_ns > mem_fabric_of(c)->network->now_ns)
        return NULL;
    if (p->kind == MEM_MESSAGE && c->held == MEM_MESSAGES_MAX)
        return NULL;
    return p;
}

static void take_request(struct mem_conn *c)
{
    c->is_surfaced = true;
    struct fabric_event *event = mem_conn_happened(c, FABRIC_EVENT_REQUEST);
    event->data = c->ticket;
    event->bytes = c->ticket_bytes;
}

static void take_lend(struct mem_conn *c, struct mem_packet *p)
{
    c->regions[p->id] = p->region;
    p->region.base = NULL; /* the connection owns the region now */
    struct fabric_event *event = mem_conn_happened(c, FABRIC_EVENT_REGION);
    event->word = p->id;
    event->bytes = p->region.bytes;
}

static void take_word(struct mem_conn *c, const struct mem_packet *p)
{
    if (c->peer != NULL)
        c->peer->posted--;
    mem_conn_happened(c, FABRIC_EVENT_WORD)->word = p->word;
}

/* The packet is the buffer of the message. It exists until the receiver returns the message. */
static void take_message(struct mem_conn *c, struct mem_packet *p)
{
    list_append(&c->messages, &p->node);
    c->held++;
    if (c->peer != NULL)
        c->peer->posted--;
    struct fabric_event *event = mem_conn_happened(c, FABRIC_EVENT_MESSAGE);
    event->data = p->data;
    event->bytes = p->bytes;
}

static void answer(struct mem_conn *c, int error, const void *data, size_t bytes)
{
    struct mem_packet *done = mem_packet_create(MEM_DONE, bytes);
    done->error = error;
    if (bytes > 0)
        memcpy(done->data, data, bytes);
    mem_conn_send(c, done);
}

static void serve_read(struct mem_conn *c, const struct mem_packet *p)
{
    const void *source = mem_region_at(c->lent, p->id, p->offset, p->bytes);
    answer(c, source != NULL ? 0 : -EFAULT, source, source != NULL ? p->bytes : 0);
}

static void serve_write(struct mem_conn *c, const struct mem_packet *p)
{
    void *target = mem_region_at(c->lent, p->id, p->offset, p->bytes);
    bool is_landed = target != NULL || p->bytes == 0;
    if (is_landed && p->bytes > 0)
        memcpy(target, p->data, p->bytes);
    if (p->is_torn)
        return;
    if (is_landed && p->has_word)
        mem_conn_happened(c, FABRIC_EVENT_WORD)->word = p->word;
    answer(c, is_landed ? 0 : -EFAULT, NULL, 0);
}

void mem_conn_take(struct mem_conn *c, struct mem_packet *p)
{
    const struct mem_network *n = mem_fabric_of(c)->network;
    list_remove(&p->node);
    switch (p->kind) {
    case MEM_REQUEST: take_request(c); break;
    case MEM_ACCEPTED:
        c->state = MEM_OPEN;
        mem_conn_happened(c, FABRIC_EVENT_OPEN);
        break;
    case MEM_REFUSED: mem_conn_end(c, -ECONNREFUSED, p->word); break;
    case MEM_FAREWELL: mem_conn_end(c, 0, 0); break;
    case MEM_RESET: mem_conn_end(c, -ECONNRESET, 0); break;
    case MEM_LEND: take_lend(c, p); break;
    case MEM_WITHDRAW: region_drop(n, &c->regions[p->id]); break;
    case MEM_MESSAGE: take_message(c, p); return;
    case MEM_READ: serve_read(c, p); break;
    case MEM_WRITE: serve_write(c, p); break;
    case MEM_WORD: take_word(c, p); break;
    case MEM_DONE: mem_conn_finish_op(c, p->error, p->data); break;
    }
    packet_destroy(n, p);
}
