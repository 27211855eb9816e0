/* Moves data over one connection: posts receives, reads and writes, and turns completions into
 * events (what is sent: ofi_send.c). Owns the slots of reads and writes. Must never wait, never
 * loop on -FI_EAGAIN, and never trust a length, an id or a message kind that a peer sent. */
#include "svc/wire/ofi_pack.h"

#include "svc/base/clock.h"

#include <errno.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 64

_Static_assert(OFI_SEND_BYTES % LINE_BYTES == 0, "send buffers start on cache lines");

/* --- buffers and slots ----------------------------------------------------------------------- */

struct fabric_event *ofi_emit(struct ofi_batch *batch, struct ofi_conn *c,
                              enum fabric_event_kind kind)
{
    struct fabric_event *e = &batch->events[batch->count++];
    *e = (struct fabric_event){.kind = kind, .conn = &c->base, .owner = c->owner};
    return e;
}

static void transfer_free(struct ofi_conn *c, struct ofi_op *op)
{
    op->next_free = c->free_transfers;
    c->free_transfers = op;
}

static struct ofi_op *transfer_take(struct ofi_conn *c)
{
    struct ofi_op *op = c->free_transfers;
    if (op != NULL)
        c->free_transfers = op->next_free;
    return op;
}

void *ofi_buffers_descriptor(const struct ofi_conn *c)
{
    return c->buffers_mr ? fi_mr_desc(c->buffers_mr) : NULL;
}

/* A receive begins before a cache line by the length of a frame, so that a message begins on one:
 * payloads behind the fixed records are then aligned for the sums that read them in place. */
static void lay_out(struct ofi_conn *c, size_t stride)
{
    for (int i = 0; i < OFI_RECEIVES; i++)
        c->receives[i] = (struct ofi_op){.kind = OFI_OP_RECEIVE,
                                         .buffer = c->buffers + (size_t)i * stride + LINE_BYTES -
                                                   sizeof(struct ofi_frame)};
    for (int i = 0; i < OFI_SENDS_MAX; i++)
        c->sends[i] = (struct ofi_op){.kind = OFI_OP_SEND,
                                      .buffer = c->buffers + OFI_RECEIVES * stride +
                                                (size_t)i * OFI_SEND_BYTES};
    uint8_t *packs = c->buffers + OFI_RECEIVES * stride + OFI_SENDS_MAX * OFI_SEND_BYTES;
    for (int i = 0; i < OFI_PACKS; i++)
        c->packs[i].op =
            (struct ofi_op){.kind = OFI_OP_PACK, .buffer = packs + (size_t)i * OFI_PACK_BYTES};
    for (int i = OFI_TRANSFERS_MAX - 1; i >= 0; i--)
        transfer_free(c, &c->transfers[i]);
}

/* Where there was none, the provider may hold a message back that it has read already: no sign will
 * come of it, so the queue must be read before the next sleep (O5). */
static int post_receive(struct ofi_conn *c, struct ofi_op *op)
{
    int r = (int)fi_recv(c->ep, op->buffer, c->receive_bytes, ofi_buffers_descriptor(c), 0,
                         &op->provider);
    if (r != 0)
        return r;
    if (c->receives_posted++ == 0)
        ofi_conn_activate(c);
    else
        ofi_conn_disarm(c);
    return 0;
}

int ofi_transfer_prepare(struct ofi_conn *c)
{
    struct ofi_fabric *f = ofi_fabric_of(c);
    c->receive_bytes = OFI_SEND_BYTES + f->payload_bytes_max;
    if (c->receive_bytes < OFI_PACK_BYTES)
        c->receive_bytes = OFI_PACK_BYTES;
    size_t stride = LINE_BYTES + (c->receive_bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    size_t bytes =
        OFI_RECEIVES * stride + OFI_SENDS_MAX * OFI_SEND_BYTES + OFI_PACKS * (size_t)OFI_PACK_BYTES;
    c->buffers = aligned_alloc(LINE_BYTES, bytes);
    if (c->buffers == NULL)
        return -ENOMEM;
    int r = ofi_memory_register_local(&f->memory, c->buffers, bytes, &c->buffers_mr);
    if (r < 0)
        return r;
    lay_out(c, stride);
    for (int i = 0; i < OFI_RECEIVES && r == 0; i++)
        r = post_receive(c, &c->receives[i]);
    return ofi_errno(r);
}

/* Gives a receive back to the provider; on an endpoint that has ended it stays with us. libfabric 2
 * says EAGAIN of such an endpoint: messages that came before its end are still to be read, and the
 * receives that are posted come back with the end. */
void ofi_transfer_repost(struct ofi_conn *c, struct ofi_op *op)
{
    if (c->ep == NULL || c->is_shut)
        return;
    int r = post_receive(c, op);
    if (r != 0 && (r != -FI_EAGAIN || c->receives_posted == 0))
        ofi_conn_fail(c, ofi_errno(r));
}

void ofi_transfer_message_done(struct ofi_conn *c, const void *data)
{
    for (int i = 0; i < OFI_RECEIVES; i++) {
        struct ofi_op *op = &c->receives[i];
        size_t at = (uintptr_t)data - (uintptr_t)op->buffer;
        if (op->held == 0 || at >= c->receive_bytes)
            continue;
        if (--op->held == 0 && op != c->unpacking.op)
            ofi_transfer_repost(c, op);
        return;
    }
}

/* --- posting --------------------------------------------------------------------------------- */

int ofi_refuse_verb(const struct ofi_conn *c)
{
    return c->phase == OFI_OPENING || c->phase == OFI_REQUESTED ? -ENOTCONN : -ECONNRESET;
}

int ofi_no_room(struct ofi_conn *c)
{
    c->wants_room = true;
    return -EAGAIN;
}

/* What to say after the provider refused a post. Full with nothing posted of ours means that it
 * ran out of something else: then no completion would tell, so the next poll does. */
int ofi_post_failed(struct ofi_conn *c, int r)
{
    if (r != -FI_EAGAIN)
        return ofi_errno(r);
    if (c->sends_asked + c->packs_posted + c->transfers_posted == 0) {
        c->has_room = true;
        ofi_conn_activate(c);
    }
    return ofi_no_room(c);
}

static int posted(struct ofi_conn *c, struct ofi_op *op, int r)
{
    if (r != 0) {
        transfer_free(c, op);
        return ofi_post_failed(c, r);
    }
    c->transfers_posted++;
    ofi_conn_disarm(c);
    return 0;
}

static int post_transfer(struct ofi_conn *c, const struct ofi_op *like, struct fi_msg_rma *message,
                         uint64_t flags)
{
    struct ofi_op *op = transfer_take(c);
    if (op == NULL)
        return ofi_no_room(c);
    *op = *like;
    message->context = &op->provider;
    int r = (int)(op->kind == OFI_OP_READ ? fi_readmsg(c->ep, message, flags)
                                          : fi_writemsg(c->ep, message, flags));
    return posted(c, op, r);
}

/* Short writes of a burst leave together. */
static int pack_write(struct ofi_conn *c, const struct ofi_item_write *write, bool has_word,
                      const void *local, size_t bytes, const struct ofi_op *like)
{
    struct ofi_op *op = transfer_take(c);
    if (op == NULL)
        return ofi_no_room(c);
    *op = *like;
    int r = ofi_pack_write(c, op, write, has_word, local, bytes);
    if (r < 0)
        transfer_free(c, op);
    else
        c->transfers_posted++;
    return r;
}

static int transfer(struct ofi_conn *c, uint32_t id, uint64_t offset, void *local, size_t bytes,
                    const struct ofi_op *like, uint64_t flags, uint64_t data)
{
    if (c->phase != OFI_OPEN)
        return ofi_refuse_verb(c);
    if (id >= FABRIC_REGIONS_MAX)
        return -EFAULT;
    const struct ofi_foreign *there = &c->foreign[id];
    if (there->bytes == 0 || offset > there->bytes || bytes > there->bytes - offset)
        return -EFAULT;
    const struct ofi_item_write write = {.region = id, .word = (uint32_t)data, .offset = offset};
    bool is_small = like->kind == OFI_OP_WRITE && bytes <= OFI_PACKED_BYTES_MAX;
    if (is_small && ofi_pack_gathers(c))
        return pack_write(c, &write, flags & FI_REMOTE_CQ_DATA, local, bytes, like);
    int r = is_small ? 0 : ofi_pack_end_burst(c);
    if (r < 0)
        return r;
    struct iovec here = {.iov_base = local, .iov_len = bytes};
    struct fi_rma_iov remote = {.addr = there->address + offset, .len = bytes, .key = there->key};
    void *descriptor = ofi_memory_descriptor(&ofi_fabric_of(c)->memory, local);
    if (descriptor == NULL && (ofi_fabric_of(c)->memory.mode & FI_MR_LOCAL))
        return -EINVAL;
    struct fi_msg_rma message = {.msg_iov = &here,
                                 .desc = &descriptor,
                                 .iov_count = 1,
                                 .rma_iov = &remote,
                                 .rma_iov_count = 1,
                                 .data = data};
    return post_transfer(c, like, &message, FI_COMPLETION | flags);
}

/* A word without bytes is a message, not a write of none: the `tcp` provider refuses those without
 * a valid region. The frame is copied by the provider (FI_INJECT). */
int ofi_transfer_notify(struct ofi_conn *c, uint32_t word, void *context)
{
    struct ofi_frame frame = {.kind = OFI_MESSAGE_NOTIFY, .value = word};
    struct iovec part = {.iov_base = &frame, .iov_len = sizeof(frame)};
    if (c->phase != OFI_OPEN)
        return ofi_refuse_verb(c);
    int r = ofi_pack_end_burst(c);
    if (r < 0)
        return r;
    struct ofi_op *op = transfer_take(c);
    if (op == NULL)
        return ofi_no_room(c);
    *op = (struct ofi_op){.kind = OFI_OP_WRITE, .context = context};
    struct fi_msg message = {.msg_iov = &part, .iov_count = 1, .context = &op->provider};
    r = (int)fi_sendmsg(c->ep, &message,
                        FI_INJECT | FI_COMPLETION | ofi_fabric_of(c)->landed_flags);
    return posted(c, op, r);
}

int ofi_transfer_read(struct ofi_conn *c, uint32_t id, uint64_t offset, void *local, size_t bytes,
                      void *context)
{
    struct ofi_op like = {.kind = OFI_OP_READ, .context = context};
    return transfer(c, id, offset, local, bytes, &like, 0, 0);
}

int ofi_transfer_write(struct ofi_conn *c, uint32_t id, uint64_t offset, const void *local,
                       size_t bytes, const uint32_t *word, void *context)
{
    struct ofi_op like = {.kind = OFI_OP_WRITE, .context = context};
    uint64_t flags = ofi_fabric_of(c)->landed_flags | (word ? FI_REMOTE_CQ_DATA : 0);
    return transfer(c, id, offset, (void *)(uintptr_t)local, bytes, &like, flags, word ? *word : 0);
}

/* --- what comes back ------------------------------------------------------------------------- */

static void word_arrived(struct ofi_conn *c, uint32_t word, struct ofi_batch *batch)
{
    if (!c->is_ours)
        ofi_emit(batch, c, FABRIC_EVENT_WORD)->word = word;
}

static void lend_arrived(struct ofi_conn *c, uint32_t id, const uint8_t *body, size_t body_bytes,
                         struct ofi_batch *batch)
{
    struct ofi_lend lend;
    if (body_bytes != sizeof(lend) || id >= FABRIC_REGIONS_MAX || c->foreign[id].bytes != 0) {
        ofi_conn_fail(c, -EPROTO);
        return;
    }
    memcpy(&lend, body, sizeof(lend));
    if (lend.bytes == 0 || lend.address > UINT64_MAX - lend.bytes) {
        ofi_conn_fail(c, -EPROTO);
        return;
    }
    c->foreign[id] =
        (struct ofi_foreign){.bytes = lend.bytes, .address = lend.address, .key = lend.key};
    if (c->is_ours)
        return;
    struct fabric_event *e = ofi_emit(batch, c, FABRIC_EVENT_REGION);
    e->word = id;
    e->bytes = lend.bytes;
}

static void withdraw_arrived(struct ofi_conn *c, uint32_t id)
{
    if (id < FABRIC_REGIONS_MAX)
        c->foreign[id].bytes = 0;
    else
        ofi_conn_fail(c, -EPROTO);
}

static void internal_arrived(struct ofi_conn *c, const struct ofi_frame *frame, const uint8_t *body,
                             size_t body_bytes, struct ofi_batch *batch)
{
    switch (frame->kind) {
    case OFI_MESSAGE_LEND: lend_arrived(c, frame->value, body, body_bytes, batch); break;
    case OFI_MESSAGE_WITHDRAW: withdraw_arrived(c, frame->value); break;
    case OFI_MESSAGE_NOTIFY: word_arrived(c, frame->value, batch); break;
    case OFI_MESSAGE_GOODBYE: c->peer_left = true; break;
    default: ofi_conn_fail(c, -EPROTO);
    }
}

static void message_arrived(struct ofi_conn *c, struct ofi_op *op, size_t bytes,
                            struct ofi_batch *batch)
{
    struct ofi_frame frame = {0};
    c->receives_posted--;
    if (bytes >= sizeof(frame) && bytes <= c->receive_bytes)
        memcpy(&frame, op->buffer, sizeof(frame));
    const uint8_t *body = op->buffer + sizeof(frame);
    if (frame.kind == OFI_MESSAGE_PACK) {
        ofi_unpack_begin(c, op, body, bytes - sizeof(frame));
        return;
    }
    if (frame.kind == OFI_MESSAGE_USER && !c->is_ours) {
        op->held = 1;
        struct fabric_event *e = ofi_emit(batch, c, FABRIC_EVENT_MESSAGE);
        e->data = body;
        e->bytes = bytes - sizeof(frame);
        return;
    }
    if (frame.kind != OFI_MESSAGE_USER)
        internal_arrived(c, &frame, body, bytes - sizeof(frame), batch);
    ofi_transfer_repost(c, op);
}

static void transfer_over(struct ofi_conn *c, struct ofi_op *op, int error, struct ofi_batch *batch)
{
    transfer_free(c, op);
    c->transfers_posted--;
    struct fabric_event *e =
        ofi_emit(batch, c, op->kind == OFI_OP_READ ? FABRIC_EVENT_READ : FABRIC_EVENT_WRITTEN);
    e->context = op->context;
    e->error = error;
}

static void operation_over(struct ofi_conn *c, struct ofi_op *op, int error,
                           struct ofi_batch *batch)
{
    c->has_room = c->wants_room;
    if (op->kind == OFI_OP_SEND)
        ofi_send_over(c, op);
    else if (op->kind == OFI_OP_PACK)
        ofi_pack_over(c, op, error);
    else
        transfer_over(c, op, error, batch);
}

static void completed(struct ofi_conn *c, const struct fi_cq_data_entry *entry,
                      struct ofi_batch *batch)
{
    struct ofi_op *op = entry->op_context;
    if (entry->flags & FI_REMOTE_WRITE) {
        word_arrived(c, (uint32_t)entry->data, batch);
        /* With FI_RX_CQ_DATA the word has used up a receive. */
        if (ofi_fabric_of(c)->info->mode & FI_RX_CQ_DATA) {
            c->receives_posted--;
            ofi_transfer_repost(c, op);
        }
    } else if (op->kind == OFI_OP_RECEIVE) {
        message_arrived(c, op, entry->len, batch);
    } else {
        operation_over(c, op, 0, batch);
    }
}

/* A receive that fails is the end of the endpoint, which the event queue reports; the error of any
 * other operation is its event. */
static void completed_in_error(struct ofi_conn *c, struct ofi_batch *batch)
{
    struct fi_cq_err_entry entry = {0};
    if (fi_cq_readerr(c->cq, &entry, 0) != 1)
        return;
    struct ofi_op *op = entry.op_context;
    if (op != NULL && op->kind != OFI_OP_RECEIVE)
        operation_over(c, op, ofi_errno(entry.err), batch);
}

/* What packs hold comes before what was completed behind them. A full batch leaves the rest for the
 * next poll; returns whether all was told. */
static bool tell_entries(struct ofi_conn *c, struct ofi_batch *batch)
{
    for (;;) {
        struct ofi_op *written;
        if (!ofi_unpack(c, batch))
            return false;
        while (!ofi_batch_is_full(batch) && (written = ofi_pack_written(c)) != NULL)
            transfer_over(c, written, written->error, batch);
        if (c->entries_told == c->entries_count)
            return c->written == NULL;
        if (ofi_batch_is_full(batch))
            return false;
        completed(c, &c->entries[c->entries_told++], batch);
    }
}

static bool drain_queue(struct ofi_conn *c, struct ofi_batch *batch)
{
    while (tell_entries(c, batch) && !ofi_batch_is_full(batch)) {
        c->entries_told = c->entries_count = 0;
        ssize_t count = fi_cq_read(c->cq, c->entries, OFI_COMPLETIONS_A_READ);
        if (count == -FI_EAVAIL) {
            completed_in_error(c, batch);
            continue;
        }
        if (count < 0) {
            if (count != -FI_EAGAIN)
                ofi_conn_fail(c, ofi_errno(count));
            return true;
        }
        c->entries_count = (size_t)count;
        if (count < OFI_COMPLETIONS_A_READ)
            return tell_entries(c, batch);
    }
    return false;
}

bool ofi_transfer_drain(struct ofi_conn *c, struct ofi_batch *batch)
{
    if (!drain_queue(c, batch))
        return false;
    if (!c->has_room || c->phase != OFI_OPEN)
        return true;
    ofi_send_withdraws(c);
    if (ofi_batch_is_full(batch))
        return false;
    c->has_room = c->wants_room = false;
    ofi_emit(batch, c, FABRIC_EVENT_ROOM);
    return true;
}
