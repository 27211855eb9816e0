/* Verbs on an open connection of fabric_mem, and the memory lent on it. The checks are as strict as
 * those of the strictest real fabric. Allocates memory, which real fabrics do not (N9). */
#include "test/fabric_mem/conn.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The caller's memory contains this byte from fabric_read() until READ, because a caller must not
 * use the former contents. */
#define JUNK 0xa5

/* --- posting --------------------------------------------------------------------------------- */

static int usable(const struct mem_conn *c)
{
    if (c->state == MEM_OPEN)
        return 0;
    return c->state == MEM_ASKING || c->state == MEM_ASKED ? -ENOTCONN : -ECONNRESET;
}

static int try_later(struct mem_conn *c)
{
    c->wants_room = true;
    mem_fabric_of(c)->counters.refused++;
    return -EAGAIN;
}

/* Counts the post. Returns an error if the test has requested one, or if the queue is full. */
static int begin_post(struct mem_conn *c)
{
    struct mem_fabric *f = mem_fabric_of(c);
    f->counters.posts++;
    if (f->fault_in > 0 && --f->fault_in == 0) {
        if (f->fault == MEM_FAULT_AGAIN)
            return try_later(c);
        if (f->fault == MEM_FAULT_KILL)
            mem_fabric_kill(&f->base);
        else
            mem_conn_break(c);
        return -ECONNRESET;
    }
    if (c->posted >= f->network->options.queue_depth)
        return try_later(c);
    c->posted++;
    return 0;
}

static bool is_lent(const struct mem_conn *c, const void *payload, size_t bytes)
{
    for (int i = 0; i < FABRIC_REGIONS_MAX; i++) {
        uintptr_t first = (uintptr_t)c->lent[i].base, at = (uintptr_t)payload;
        if (first != 0 && at >= first && at - first <= c->lent[i].bytes &&
            bytes <= c->lent[i].bytes - (at - first))
            return true;
    }
    return false;
}

int mem_verb_send(struct fabric_conn *base, const void *header, size_t header_bytes,
                  const void *payload, size_t payload_bytes)
{
    struct mem_conn *c = mem_conn(base);
    struct mem_fabric *f = mem_fabric_of(c);
    size_t payload_bytes_max = f->network->options.is_mapped ? 0 : f->payload_bytes_max;
    int r = usable(c);
    if (r < 0)
        return r;
    if (payload_bytes > payload_bytes_max)
        return -EMSGSIZE;
    assert(payload_bytes == 0 || is_lent(c, payload, payload_bytes));
    r = begin_post(c);
    if (r < 0)
        return r;
    struct mem_packet *p = mem_packet_create(MEM_MESSAGE, header_bytes + payload_bytes);
    if (header_bytes > 0)
        memcpy(p->data, header, header_bytes);
    if (payload_bytes > 0)
        memcpy(p->data + header_bytes, payload, payload_bytes);
    f->counters.messages++;
    f->counters.message_bytes += p->bytes;
    mem_conn_send(c, p);
    return 0;
}

void mem_verb_message_done(struct fabric_conn *base, const void *data)
{
    struct mem_conn *c = mem_conn(base);
    list_for_each_safe (node, &c->messages) {
        struct mem_packet *p = list_entry(node, struct mem_packet, node);
        if (p->data != data)
            continue;
        list_remove(node);
        free(p);
        c->held--;
        return;
    }
    assert(!"a message that is not held");
}

int mem_verb_messages_held_max(const struct fabric *f) { return MEM_MESSAGES_MAX - 1; }

/* --- lent memory ----------------------------------------------------------------------------- */

/* Creates the region for the receiver. In a network that maps memory the region is a second
 * mapping; in other networks the region has the same addresses. */
static int share_region(const struct mem_network *n, const struct region *region,
                        struct region *ret_shared)
{
    struct region shared = {.base = region->base, .bytes = region->bytes, .fd = -1};
    if (n->options.is_mapped) {
        if (region->fd < 0)
            return -ENOTSUP;
        shared.base = mmap(NULL, region->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd, 0);
        if (shared.base == MAP_FAILED)
            return -errno;
    }
    *ret_shared = shared;
    return 0;
}

int mem_verb_lend(struct fabric_conn *base, const struct region *region, uint32_t id)
{
    struct mem_conn *c = mem_conn(base);
    struct region shared;
    int r = usable(c);
    if (r == 0 && c->lent[id].base != NULL)
        r = -EEXIST;
    if (r == 0)
        r = share_region(mem_fabric_of(c)->network, region, &shared);
    if (r < 0)
        return r;
    c->lent[id] = *region;
    struct mem_packet *p = mem_packet_create(MEM_LEND, 0);
    p->id = id;
    p->region = shared;
    mem_conn_send(c, p);
    return 0;
}

void mem_verb_withdraw(struct fabric_conn *base, uint32_t id)
{
    struct mem_conn *c = mem_conn(base);
    if (usable(c) < 0 || id >= FABRIC_REGIONS_MAX || c->lent[id].base == NULL)
        return;
    c->lent[id] = (struct region){0};
    struct mem_packet *p = mem_packet_create(MEM_WITHDRAW, 0);
    p->id = id;
    mem_conn_send(c, p);
}

void *mem_verb_map(struct fabric_conn *base, uint32_t id, uint64_t offset, size_t bytes)
{
    const struct mem_conn *c = mem_conn(base);
    if (!mem_fabric_of(c)->network->options.is_mapped)
        return NULL;
    return mem_region_at(c->regions, id, offset, bytes);
}

uint64_t mem_verb_region_bytes(const struct fabric_conn *c, uint32_t id)
{
    return id < FABRIC_REGIONS_MAX ? ((const struct mem_conn *)c)->regions[id].bytes : 0;
}

int mem_verb_pool_register(struct fabric *f, void *base, size_t bytes) { return 0; }
void mem_verb_pool_unregister(struct fabric *f, void *base) {}

/* --- reading and writing --------------------------------------------------------------------- */

static void begin_op(struct mem_conn *c, enum fabric_event_kind kind, void *local, size_t bytes,
                     void *context)
{
    struct mem_op *op = mem_zalloc(sizeof *op);
    *op = (struct mem_op){.kind = kind, .context = context, .local = local, .bytes = bytes};
    if (kind == FABRIC_EVENT_WRITTEN)
        op->digest = mem_digest(local, bytes);
    list_append(&c->ops, &op->node);
}

int mem_verb_read(struct fabric_conn *base, uint32_t id, uint64_t offset, void *local, size_t bytes,
                  void *context)
{
    struct mem_conn *c = mem_conn(base);
    struct mem_fabric *f = mem_fabric_of(c);
    const void *source = mem_region_at(c->regions, id, offset, bytes);
    int r = usable(c);
    if (r == 0)
        r = source == NULL ? -EFAULT : begin_post(c);
    if (r < 0)
        return r;
    begin_op(c, FABRIC_EVENT_READ, local, bytes, context);
    f->counters.reads++;
    f->counters.read_bytes += bytes;
    if (f->network->options.is_mapped) {
        mem_conn_finish_op(c, 0, source);
        return 0;
    }
    memset(local, JUNK, bytes);
    struct mem_packet *p = mem_packet_create(MEM_READ, 0);
    p->id = id;
    p->offset = offset;
    p->bytes = bytes;
    mem_conn_send(c, p);
    return 0;
}

/* A write of bytes into a region, of a word, or of both. */
struct write {
    uint32_t id, word;
    uint64_t offset;
    const void *local;
    size_t bytes;
    bool has_word;
};

/* Writes the bytes at once; only the word is sent. */
static void write_mapped(struct mem_conn *c, const struct write *w, void *target)
{
    if (target != NULL && w->bytes > 0)
        memcpy(target, w->local, w->bytes);
    if (w->has_word) {
        struct mem_packet *p = mem_packet_create(MEM_WORD, 0);
        p->word = w->word;
        /* A word counts as posted until it arrives, so a peer that does not poll receives a limited
         * number. */
        c->posted++;
        mem_conn_send(c, p);
    }
    mem_conn_finish_op(c, 0, NULL);
}

static void write_remote(struct mem_conn *c, const struct write *w)
{
    struct mem_packet *p = mem_packet_create(MEM_WRITE, w->bytes);
    if (w->bytes > 0)
        memcpy(p->data, w->local, w->bytes);
    p->id = w->id;
    p->offset = w->offset;
    p->has_word = w->has_word;
    p->word = w->word;
    mem_conn_send(c, p);
}

static int post_write(struct mem_conn *c, const struct write *w, bool is_notify, void *context)
{
    struct mem_fabric *f = mem_fabric_of(c);
    void *target = is_notify ? NULL : mem_region_at(c->regions, w->id, w->offset, w->bytes);
    int r = usable(c);
    if (r == 0)
        r = target == NULL && !is_notify ? -EFAULT : begin_post(c);
    if (r < 0)
        return r;
    begin_op(c, FABRIC_EVENT_WRITTEN, (void *)w->local, w->bytes, context);
    f->counters.writes += !is_notify;
    f->counters.written_bytes += w->bytes;
    f->counters.words += w->has_word;
    if (f->network->options.is_mapped)
        write_mapped(c, w, target);
    else
        write_remote(c, w);
    return 0;
}

int mem_verb_write(struct fabric_conn *c, uint32_t id, uint64_t offset, const void *local,
                   size_t bytes, void *context)
{
    struct write w = {.id = id, .offset = offset, .local = local, .bytes = bytes};
    return post_write(mem_conn(c), &w, false, context);
}

int mem_verb_write_word(struct fabric_conn *c, uint32_t id, uint64_t offset, const void *local,
                        size_t bytes, uint32_t word, void *context)
{
    struct write w = {
        .id = id, .offset = offset, .local = local, .bytes = bytes, .has_word = true, .word = word};
    return post_write(mem_conn(c), &w, false, context);
}

int mem_verb_notify(struct fabric_conn *c, uint32_t word, void *context)
{
    struct write w = {.has_word = true, .word = word};
    return post_write(mem_conn(c), &w, true, context);
}
