/* Owns the fabrics of kind "mem": the verbs of fabric.h on virtual time, and the faults that tests
 * request. Single-threaded; must never sleep or read real time. README: N1 to N9. */
#include "test/fabric_mem/fabric_mem.h"

#include "test/fabric_mem/conn.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- fabrics --------------------------------------------------------------------------------- */

static struct mem_fabric *fabric_of(const struct fabric *f) { return (struct mem_fabric *)f; }

/* Returns a connection that has not ended. The caller cannot use list_for_each: if both ends belong
 * to one fabric, the end of one connection may free another list entry. */
static struct mem_conn *first_live(struct mem_fabric *f)
{
    list_for_each (node, &f->conns) {
        struct mem_conn *c = list_entry(node, struct mem_conn, node);
        if (c->state < MEM_ENDED)
            return c;
    }
    return NULL;
}

static const char *describe(const struct fabric *f) { return fabric_of(f)->text; }

static struct mem_fabric *find_listener(struct mem_network *n, const char *name)
{
    list_for_each (node, &n->fabrics) {
        struct mem_fabric *f = list_entry(node, struct mem_fabric, node);
        if (name[0] != '\0' && strcmp(f->name, name) == 0)
            return f;
    }
    return NULL;
}

static int listen_mem(struct fabric *base, const char *address, char *ret_address)
{
    struct mem_fabric *f = fabric_of(base);
    size_t bytes = strlen(address) + 1;
    if (bytes == 1 || bytes > sizeof f->name || f->name[0] != '\0')
        return -EINVAL;
    if (find_listener(f->network, address) != NULL)
        return -EADDRINUSE;
    memcpy(f->name, address, bytes);
    memcpy(ret_address, address, bytes);
    return 0;
}

/* --- connections ----------------------------------------------------------------------------- */

static int connect_mem(struct fabric *base, const char *address, const void *ticket,
                       size_t ticket_bytes, void *owner, struct fabric_conn **ret_conn)
{
    struct mem_fabric *f = fabric_of(base);
    struct mem_fabric *listener = find_listener(f->network, address);
    if (f->is_killed)
        return -ECONNRESET;
    if (listener == NULL)
        return -ECONNREFUSED;
    struct mem_conn *ours = mem_conn_create(f, MEM_ASKING);
    struct mem_conn *theirs = mem_conn_create(listener, MEM_ASKED);
    ours->owner = owner;
    ours->peer = theirs;
    theirs->peer = ours;
    if (ticket_bytes > 0)
        memcpy(theirs->ticket, ticket, ticket_bytes);
    theirs->ticket_bytes = ticket_bytes;
    snprintf(ours->peer_text, sizeof ours->peer_text, "mem fabric %u", listener->number);
    snprintf(theirs->peer_text, sizeof theirs->peer_text, "mem fabric %u", f->number);
    mem_conn_tell(ours, MEM_REQUEST);
    *ret_conn = &ours->base;
    return 0;
}

static int accept_mem(struct fabric_conn *base, void *owner)
{
    struct mem_conn *c = mem_conn(base);
    if (c->state != MEM_ASKED)
        return -ECONNRESET;
    c->owner = owner;
    c->state = MEM_OPEN;
    mem_conn_happened(c, FABRIC_EVENT_OPEN);
    mem_conn_tell(c, MEM_ACCEPTED);
    return 0;
}

static void refuse_mem(struct fabric_conn *base, int reason)
{
    struct mem_conn *c = mem_conn(base);
    if (c->state != MEM_ASKED)
        return;
    struct mem_packet *p = mem_packet_create(MEM_REFUSED, 0);
    p->word = (uint32_t)reason;
    mem_conn_send(c, p);
    c->state = MEM_RETIRED;
}

static void disconnect_mem(struct fabric_conn *base)
{
    struct mem_conn *c = mem_conn(base);
    if (c->state == MEM_ASKED)
        refuse_mem(base, ECONNREFUSED);
    else if (c->state == MEM_OPEN || c->state == MEM_ASKING)
        mem_conn_leave(c);
}

static void close_mem(struct fabric *base)
{
    struct mem_fabric *f = fabric_of(base);
    struct mem_conn *c;
    while ((c = first_live(f)) != NULL)
        disconnect_mem(&c->base);
    list_for_each_safe (node, &f->conns)
        mem_conn_destroy(list_entry(node, struct mem_conn, node));
    list_remove(&f->node);
    free(f);
}

static const char *peer_mem(const struct fabric_conn *c)
{
    return ((const struct mem_conn *)c)->peer_text;
}
static int peer_pid(const struct fabric_conn *c) { return 0; }

/* --- polling --------------------------------------------------------------------------------- */

static void free_retired(struct mem_fabric *f)
{
    list_for_each_safe (node, &f->conns) {
        struct mem_conn *c = list_entry(node, struct mem_conn, node);
        if (c->state == MEM_RETIRED)
            mem_conn_destroy(c);
    }
}

static void hand_out(struct mem_event *e, struct fabric_event *ret_event)
{
    struct mem_conn *c = mem_conn(e->event.conn);
    if (e->event.kind == FABRIC_EVENT_READ || e->event.kind == FABRIC_EVENT_WRITTEN)
        c->posted--;
    if (e->event.kind == FABRIC_EVENT_CLOSED)
        c->state = MEM_RETIRED;
    *ret_event = e->event;
    list_remove(&e->node);
    free(e);
}

/* Handles the packet with the earliest time on all connections. */
static bool take_packet(struct mem_fabric *f)
{
    struct mem_conn *from = NULL;
    struct mem_packet *first = NULL;
    list_for_each (node, &f->conns) {
        struct mem_conn *c = list_entry(node, struct mem_conn, node);
        struct mem_packet *p = mem_conn_due(c);
        if (p == NULL)
            continue;
        if (first == NULL || p->due_ns < first->due_ns ||
            (p->due_ns == first->due_ns && p->number < first->number)) {
            first = p;
            from = c;
        }
    }
    if (first != NULL)
        mem_conn_take(from, first);
    return first != NULL;
}

static bool has_room(const struct mem_conn *c)
{
    uint32_t depth = mem_fabric_of(c)->network->options.queue_depth;
    return c->wants_room && c->state == MEM_OPEN && c->posted < depth;
}

static bool tell_room(struct mem_fabric *f)
{
    bool told = false;
    list_for_each (node, &f->conns) {
        struct mem_conn *c = list_entry(node, struct mem_conn, node);
        if (!has_room(c))
            continue;
        c->wants_room = false;
        mem_conn_happened(c, FABRIC_EVENT_ROOM);
        told = true;
    }
    return told;
}

static int poll_mem(struct fabric *base, struct fabric_event *events, int events_max)
{
    struct mem_fabric *f = fabric_of(base);
    int n = 0;
    if (f->is_stopped || f->is_killed)
        return 0;
    free_retired(f);
    while (n < events_max) {
        struct list *first = list_first(&f->events);
        if (first != NULL)
            hand_out(list_entry(first, struct mem_event, node), &events[n++]);
        else if (!take_packet(f) && !tell_room(f))
            break;
    }
    return n;
}

static void flush_mem(struct fabric *f) {}

static bool has_work(struct mem_fabric *f)
{
    if (f->is_stopped || f->is_killed)
        return false;
    list_for_each (node, &f->conns) {
        struct mem_conn *c = list_entry(node, struct mem_conn, node);
        if (mem_conn_due(c) != NULL || has_room(c))
            return true;
    }
    return !list_is_empty(&f->events);
}

static int arm(struct fabric *base, struct fabric_wait *ret_wait)
{
    struct mem_fabric *f = fabric_of(base);
    if (has_work(f))
        return -EAGAIN;
    *ret_wait = (struct fabric_wait){.fd = -1, .bell = &f->bell, .bell_value = f->bell};
    return 0;
}

static bool mem_is_sound(const struct fabric_conn *c) { return true; }

static void abandon_in_child(struct fabric *f) {}

static const struct fabric_conn_ops mem_conn_ops = {
    .accept = accept_mem,
    .refuse = refuse_mem,
    .disconnect = disconnect_mem,
    .fence = disconnect_mem,
    .leave = disconnect_mem,
    .peer = peer_mem,
    .peer_pid = peer_pid,
    .send = mem_verb_send,
    .message_done = mem_verb_message_done,
    .lend = mem_verb_lend,
    .withdraw = mem_verb_withdraw,
    .map = mem_verb_map,
    .is_sound = mem_is_sound,
    .region_bytes = mem_verb_region_bytes,
    .read = mem_verb_read,
    .write = mem_verb_write,
    .write_word = mem_verb_write_word,
    .notify = mem_verb_notify,
};

static const struct fabric_ops mem_ops = {
    .kind = "mem",
    .close = close_mem,
    .describe = describe,
    .listen = listen_mem,
    .connect = connect_mem,
    .messages_held_max = mem_verb_messages_held_max,
    .pool_register = mem_verb_pool_register,
    .pool_unregister = mem_verb_pool_unregister,
    .poll = poll_mem,
    .flush = flush_mem,
    .arm = arm,
    .abandon_in_child = abandon_in_child,
    .conn = &mem_conn_ops,
};

int mem_fabric_open(struct mem_network *network, const struct fabric_options *options,
                    struct fabric **ret_fabric)
{
    struct mem_fabric *f = mem_zalloc(sizeof *f);
    f->base.ops = &mem_ops;
    f->network = network;
    f->number = network->fabrics_made++;
    f->payload_bytes_max = options != NULL ? options->payload_bytes_max : 0;
    snprintf(f->text, sizeof f->text, "mem: fabric %u of a %s network, seed %llu", f->number,
             network->options.is_mapped ? "mapped" : "message",
             (unsigned long long)network->options.seed);
    list_init(&f->conns);
    list_init(&f->events);
    list_append(&network->fabrics, &f->node);
    *ret_fabric = &f->base;
    return 0;
}

/* --- faults ---------------------------------------------------------------------------------- */

void mem_fabric_kill(struct fabric *base)
{
    struct mem_fabric *f = fabric_of(base);
    struct mem_conn *c;
    f->is_killed = true;
    f->name[0] = '\0';
    while ((c = first_live(f)) != NULL)
        mem_conn_break(c);
}

void mem_fabric_stop(struct fabric *f, bool is_stopped) { fabric_of(f)->is_stopped = is_stopped; }

void mem_fabric_fail_post(struct fabric *base, uint64_t n, enum mem_fault fault)
{
    struct mem_fabric *f = fabric_of(base);
    f->fault_in = n;
    f->fault = fault;
}

struct mem_counters mem_fabric_counters(const struct fabric *f) { return fabric_of(f)->counters; }
