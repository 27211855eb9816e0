/* Small messages and writes that are posted in a burst on one connection. They are collected in a
 * buffer and sent as one message, which the other end splits again. Owns the packs and the burst.
 * The order of operations is always kept. A single operation is never delayed. Every byte of a
 * peer's pack is checked. README: O13. */
#include "svc/fabric/ofi/pack.h"

#include "svc/fabric/ofi/message/item.h"
#include "svc/fabric/ofi/provider/queue.h"

#include <errno.h>
#include <rdma/fi_errno.h>
#include <string.h>

_Static_assert(OFI_PACKED_BYTES_MAX + FABRIC_MESSAGE_BYTES_MAX + 64 < OFI_PACK_BYTES, "fits");

/* Number of operations of a burst that are sent at once, because perhaps no other operation
 * follows. */
#define ALONE_MAX 1

static int pack_post(struct ofi_conn *c);

/* --- gathering ------------------------------------------------------------------------------- */

/* Returns the pack for the next item, a new one if necessary. Returns NULL if all packs are being
 * sent. */
static struct ofi_pack *pack_open(struct ofi_conn *c)
{
    for (int i = 0; c->pack == NULL && i < OFI_PACKS; i++) {
        struct ofi_pack *p = &c->packs[i];
        if (p->is_posted)
            continue;
        p->bytes = sizeof(struct ofi_frame);
        p->items = 0;
        p->writes = NULL;
        p->writes_end = &p->writes;
        c->pack = p;
    }
    return c->pack;
}

bool ofi_pack_gathers(struct ofi_conn *c)
{
    if (list_is_empty(&c->in_bursts))
        list_append(&ofi_fabric_of(c)->bursts, &c->in_bursts);
    return c->pack != NULL || c->burst++ >= ALONE_MAX;
}

/* Reserves space for the body of an item at the end of the pack. Returns NULL if there is no room
 * now. */
static uint8_t *pack_append(struct ofi_conn *c, enum ofi_item_kind kind, size_t bytes)
{
    struct ofi_item item = {.kind = kind, .bytes = (uint32_t)bytes};
    size_t whole = sizeof(item) + ofi_item_padded(bytes);
    bool is_full = c->pack != NULL && c->pack->bytes + whole > OFI_PACK_BYTES;
    if ((is_full && pack_post(c) < 0) || pack_open(c) == NULL)
        return NULL;
    uint8_t *at = c->pack->op.buffer + c->pack->bytes;
    memset(at + whole - OFI_ITEM_PAD_BYTES, 0, OFI_ITEM_PAD_BYTES);
    memcpy(at, &item, sizeof(item));
    c->pack->bytes += whole;
    c->pack->items++;
    return at + sizeof(item);
}

int ofi_pack_message(struct ofi_conn *c, const void *header, size_t header_bytes,
                     const void *payload, size_t payload_bytes)
{
    uint8_t *body = pack_append(c, OFI_ITEM_USER, header_bytes + payload_bytes);
    if (body == NULL)
        return ofi_queue_no_room(c);
    memcpy(body, header, header_bytes);
    if (payload_bytes > 0)
        memcpy(body + header_bytes, payload, payload_bytes);
    return 0;
}

int ofi_pack_write(struct ofi_conn *c, struct ofi_op *op, const struct ofi_item_write *write,
                   bool has_word, const void *local, size_t bytes)
{
    uint8_t *body =
        pack_append(c, has_word ? OFI_ITEM_WRITE_WORD : OFI_ITEM_WRITE, sizeof(*write) + bytes);
    if (body == NULL)
        return ofi_queue_no_room(c);
    memcpy(body, write, sizeof(*write));
    if (bytes > 0)
        memcpy(body + sizeof(*write), local, bytes);
    op->next_free = NULL;
    *c->pack->writes_end = op;
    c->pack->writes_end = &op->next_free;
    return 0;
}

/* --- sending --------------------------------------------------------------------------------- */

static int pack_post(struct ofi_conn *c)
{
    struct ofi_pack *p = c->pack;
    if (p == NULL || p->items == 0 || c->phase > OFI_LINGERING)
        return 0;
    struct ofi_frame frame = {.kind = OFI_MESSAGE_PACK, .value = p->items};
    memcpy(p->op.buffer, &frame, sizeof(frame));
    struct iovec part = {.iov_base = p->op.buffer, .iov_len = p->bytes};
    void *descriptor = ofi_queue_descriptor(c);
    struct fi_msg message = {
        .msg_iov = &part, .desc = &descriptor, .iov_count = 1, .context = &p->op.provider};
    uint64_t landed = p->writes != NULL ? ofi_fabric_of(c)->landed_flags : 0;
    int error = (int)fi_sendmsg(c->ep, &message, FI_COMPLETION | landed);
    if (error != 0)
        return ofi_queue_post_failed(c, error);
    p->is_posted = true;
    c->packs_posted++;
    c->pack = NULL;
    /* the queue must be read whenever a completion may be available at once (O5) */
    ofi_queue_activate(c);
    return 0;
}

int ofi_pack_end_burst(struct ofi_conn *c)
{
    int error = pack_post(c);
    if (error == 0)
        c->burst = 0;
    return error;
}

void ofi_pack_end_bursts(struct ofi_fabric *f)
{
    list_for_each_safe_entry (struct ofi_conn, c, &f->bursts, in_bursts) {
        int error = ofi_pack_end_burst(c);
        if (error == -EAGAIN && c->sends_asked + c->packs_posted == 0)
            /* no later completion would cause another attempt, so the next poll tries again */
            ofi_queue_activate(c);
        if (error == -EAGAIN)
            continue; /* the attempt is repeated after the next completion */
        if (error < 0)
            ofi_queue_fail(c, error);
        list_remove(&c->in_bursts);
    }
}

void ofi_pack_over(struct ofi_conn *c, struct ofi_op *op, int error)
{
    c->packs_posted--;
    c->has_room = c->wants_room;
    ofi_queue_finish_pack(c, (struct ofi_pack *)op, error);
}

struct ofi_op *ofi_pack_written(struct ofi_conn *c)
{
    struct ofi_op *op = c->written;
    if (op == NULL)
        return NULL;
    c->written = op->next_free;
    if (c->written == NULL)
        c->written_end = &c->written;
    return op;
}

/* --- reading packs ---------------------------------------------------------------------------- */

/* Copies bytes into memory that this end lends. The bytes are also copied after a disconnect of
 * this end, because the peer assumes that they were written (O4). */
static bool unpack_write(struct ofi_conn *c, const uint8_t *body, size_t bytes, bool has_word,
                         struct ofi_batch *batch)
{
    struct ofi_item_write write;
    if (ofi_item_write_head(body, bytes, &write, &bytes) < 0)
        return false;
    const struct ofi_region *r = write.region < FABRIC_REGIONS_MAX ? c->lent[write.region] : NULL;
    if (r == NULL || write.offset > r->bytes || bytes > r->bytes - write.offset)
        return false;
    memcpy((uint8_t *)r->base + write.offset, body + sizeof(write), bytes);
    if (has_word && !c->is_ours)
        ofi_queue_emit(batch, c, FABRIC_EVENT_WORD)->word = write.word;
    return true;
}

static void unpack_message(struct ofi_conn *c, const uint8_t *body, size_t bytes,
                           struct ofi_batch *batch)
{
    if (c->is_ours)
        return;
    c->unpacking.op->held++;
    struct fabric_event *e = ofi_queue_emit(batch, c, FABRIC_EVENT_MESSAGE);
    e->data = body;
    e->bytes = bytes;
}

/* Executes the next item of the pack. Returns false if the bytes are no item of gradpool. */
static bool unpack_one(struct ofi_conn *c, struct ofi_batch *batch)
{
    struct ofi_unpacking *u = &c->unpacking;
    struct ofi_item item;
    const uint8_t *body;
    if (ofi_item_next(&u->at, &u->left, &item, &body) < 0)
        return false;
    switch (item.kind) {
    case OFI_ITEM_USER: unpack_message(c, body, item.bytes, batch); return true;
    case OFI_ITEM_WRITE: return unpack_write(c, body, item.bytes, false, batch);
    case OFI_ITEM_WRITE_WORD: return unpack_write(c, body, item.bytes, true, batch);
    default: return false;
    }
}

void ofi_unpack_begin(struct ofi_conn *c, struct ofi_op *op, const uint8_t *body, size_t bytes)
{
    c->unpacking = (struct ofi_unpacking){.op = op, .at = body, .left = bytes};
}

bool ofi_unpack(struct ofi_conn *c, struct ofi_batch *batch)
{
    struct ofi_unpacking *u = &c->unpacking;
    while (u->left > 0) {
        if (ofi_batch_is_full(batch))
            return false;
        if (unpack_one(c, batch))
            continue;
        u->left = 0;
        ofi_queue_fail(c, -EPROTO);
    }
    struct ofi_op *op = u->op;
    u->op = NULL;
    if (op != NULL && op->held == 0)
        ofi_queue_repost(c, op);
    return true;
}
