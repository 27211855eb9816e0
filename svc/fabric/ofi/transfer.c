/* Moves data over one connection: posts reads and writes, and converts completions into events.
 * send.c sends messages. Never blocks, never loops on -FI_EAGAIN, and checks every length, id and
 * message kind from a peer. */
#include "svc/fabric/ofi/transfer.h"

#include "svc/fabric/ofi/pack.h"
#include "svc/fabric/ofi/provider/names.h"
#include "svc/fabric/ofi/provider/queue.h"
#include "svc/fabric/ofi/send.h"

#include <errno.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <string.h>

/* --- posting --------------------------------------------------------------------------------- */

static int transfer_posted(struct ofi_conn *c, struct ofi_op *op, int error)
{
    if (error != 0) {
        ofi_queue_free_transfer(c, op);
        return ofi_queue_post_failed(c, error);
    }
    c->transfers_posted++;
    ofi_queue_disarm(c);
    return 0;
}

static int transfer_post(struct ofi_conn *c, const struct ofi_op *like, struct fi_msg_rma *message,
                         uint64_t flags)
{
    struct ofi_op *op = ofi_queue_take_transfer(c);
    if (op == NULL)
        return ofi_queue_no_room(c);
    *op = *like;
    message->context = &op->provider;
    int error = (int)(op->kind == OFI_OP_READ ? fi_readmsg(c->ep, message, flags)
                                              : fi_writemsg(c->ep, message, flags));
    return transfer_posted(c, op, error);
}

/* Adds the write to a pack. The short writes of a burst are sent together. */
static int transfer_pack_write(struct ofi_conn *c, const struct ofi_item_write *write,
                               bool has_word, const void *local, size_t bytes,
                               const struct ofi_op *like)
{
    struct ofi_op *op = ofi_queue_take_transfer(c);
    if (op == NULL)
        return ofi_queue_no_room(c);
    *op = *like;
    int error = ofi_pack_write(c, op, write, has_word, local, bytes);
    if (error < 0)
        ofi_queue_free_transfer(c, op);
    else
        c->transfers_posted++;
    return error;
}

static int transfer_start(struct ofi_conn *c, uint32_t id, uint64_t offset, void *local,
                          size_t bytes, const struct ofi_op *like, uint64_t flags, uint64_t data)
{
    if (c->phase != OFI_OPEN)
        return ofi_queue_refuse(c);
    if (id >= FABRIC_REGIONS_MAX)
        return -EFAULT;
    const struct ofi_foreign *there = &c->foreign[id];
    if (there->bytes == 0 || offset > there->bytes || bytes > there->bytes - offset)
        return -EFAULT;
    const struct ofi_item_write write = {.region = id, .word = (uint32_t)data, .offset = offset};
    bool is_small = like->kind == OFI_OP_WRITE && bytes <= OFI_PACKED_BYTES_MAX;
    if (is_small && ofi_pack_gathers(c))
        return transfer_pack_write(c, &write, flags & FI_REMOTE_CQ_DATA, local, bytes, like);
    int error = is_small ? 0 : ofi_pack_end_burst(c);
    if (error < 0)
        return error;
    struct iovec here = {.iov_base = local, .iov_len = bytes};
    struct fi_rma_iov remote = {.addr = there->address + offset, .len = bytes, .key = there->key};
    void *descriptor;
    error = ofi_memory_descriptor(ofi_fabric_of(c)->memory, local, &descriptor);
    if (error < 0)
        return error;
    struct fi_msg_rma message = {.msg_iov = &here,
                                 .desc = &descriptor,
                                 .iov_count = 1,
                                 .rma_iov = &remote,
                                 .rma_iov_count = 1,
                                 .data = data};
    return transfer_post(c, like, &message, FI_COMPLETION | flags);
}

/* A word without bytes is sent as a message, because the `tcp` provider refuses an empty write
 * without a valid region. The provider copies the frame (FI_INJECT), so no buffer stays in use. */
int ofi_transfer_notify(struct ofi_conn *c, uint32_t word, void *context)
{
    struct ofi_frame frame = {.kind = OFI_MESSAGE_NOTIFY, .value = word};
    struct iovec part = {.iov_base = &frame, .iov_len = sizeof(frame)};
    if (c->phase != OFI_OPEN)
        return ofi_queue_refuse(c);
    int error = ofi_pack_end_burst(c);
    if (error < 0)
        return error;
    struct ofi_op *op = ofi_queue_take_transfer(c);
    if (op == NULL)
        return ofi_queue_no_room(c);
    *op = (struct ofi_op){.kind = OFI_OP_WRITE, .context = context};
    struct fi_msg message = {.msg_iov = &part, .iov_count = 1, .context = &op->provider};
    error = (int)fi_sendmsg(c->ep, &message,
                            FI_INJECT | FI_COMPLETION | ofi_fabric_of(c)->landed_flags);
    return transfer_posted(c, op, error);
}

int ofi_transfer_read(struct ofi_conn *c, uint32_t id, uint64_t offset, void *local, size_t bytes,
                      void *context)
{
    struct ofi_op like = {.kind = OFI_OP_READ, .context = context};
    return transfer_start(c, id, offset, local, bytes, &like, 0, 0);
}

int ofi_transfer_write(struct ofi_conn *c, uint32_t id, uint64_t offset, const void *local,
                       size_t bytes, const uint32_t *word, void *context)
{
    struct ofi_op like = {.kind = OFI_OP_WRITE, .context = context};
    uint64_t flags = ofi_fabric_of(c)->landed_flags | (word ? FI_REMOTE_CQ_DATA : 0);
    return transfer_start(c, id, offset, (void *)(uintptr_t)local, bytes, &like, flags,
                          word ? *word : 0);
}

/* --- completions ----------------------------------------------------------------------------- */

static void word_arrived(struct ofi_conn *c, uint32_t word, struct ofi_batch *batch)
{
    if (!c->is_ours)
        ofi_queue_emit(batch, c, FABRIC_EVENT_WORD)->word = word;
}

static void lend_arrived(struct ofi_conn *c, uint32_t id, const uint8_t *body, size_t body_bytes,
                         struct ofi_batch *batch)
{
    struct ofi_lend lend;
    if (body_bytes != sizeof(lend) || id >= FABRIC_REGIONS_MAX || c->foreign[id].bytes != 0) {
        ofi_queue_fail(c, -EPROTO);
        return;
    }
    memcpy(&lend, body, sizeof(lend));
    if (lend.bytes == 0 || lend.address > UINT64_MAX - lend.bytes) {
        ofi_queue_fail(c, -EPROTO);
        return;
    }
    c->foreign[id] =
        (struct ofi_foreign){.bytes = lend.bytes, .address = lend.address, .key = lend.key};
    if (c->is_ours)
        return;
    struct fabric_event *e = ofi_queue_emit(batch, c, FABRIC_EVENT_REGION);
    e->word = id;
    e->bytes = lend.bytes;
}

static void withdraw_arrived(struct ofi_conn *c, uint32_t id)
{
    if (id < FABRIC_REGIONS_MAX)
        c->foreign[id].bytes = 0;
    else
        ofi_queue_fail(c, -EPROTO);
}

static void internal_arrived(struct ofi_conn *c, const struct ofi_frame *frame, const uint8_t *body,
                             size_t body_bytes, struct ofi_batch *batch)
{
    switch (frame->kind) {
    case OFI_MESSAGE_LEND: lend_arrived(c, frame->value, body, body_bytes, batch); break;
    case OFI_MESSAGE_WITHDRAW: withdraw_arrived(c, frame->value); break;
    case OFI_MESSAGE_NOTIFY: word_arrived(c, frame->value, batch); break;
    case OFI_MESSAGE_GOODBYE: c->peer_left = true; break;
    default: ofi_queue_fail(c, -EPROTO);
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
        struct fabric_event *e = ofi_queue_emit(batch, c, FABRIC_EVENT_MESSAGE);
        e->data = body;
        e->bytes = bytes - sizeof(frame);
        return;
    }
    if (frame.kind != OFI_MESSAGE_USER)
        internal_arrived(c, &frame, body, bytes - sizeof(frame), batch);
    ofi_queue_repost(c, op);
}

static void transfer_over(struct ofi_conn *c, struct ofi_op *op, int error, struct ofi_batch *batch)
{
    ofi_queue_free_transfer(c, op);
    c->transfers_posted--;
    struct fabric_event *e = ofi_queue_emit(
        batch, c, op->kind == OFI_OP_READ ? FABRIC_EVENT_READ : FABRIC_EVENT_WRITTEN);
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
        /* under FI_RX_CQ_DATA each word consumes a posted receive, which is posted again */
        if (ofi_fabric_of(c)->info->mode & FI_RX_CQ_DATA) {
            c->receives_posted--;
            ofi_queue_repost(c, op);
        }
    } else if (op->kind == OFI_OP_RECEIVE) {
        message_arrived(c, op, entry->len, batch);
    } else {
        operation_over(c, op, 0, batch);
    }
}

/* Reads the completion of a failed operation, and reports the error in the operation's event. A
 * failed receive has no event, because the event queue reports the end of its endpoint. */
static void completed_in_error(struct ofi_conn *c, struct ofi_batch *batch)
{
    struct fi_cq_err_entry entry = {0};
    if (fi_cq_readerr(c->cq, &entry, 0) != 1)
        return;
    struct ofi_op *op = entry.op_context;
    if (op != NULL && op->kind != OFI_OP_RECEIVE)
        operation_over(c, op, ofi_errno(entry.err), batch);
}

/* Reports completions. Items of packs are reported before later completions. If the batch is full,
 * the other completions are left for the next poll. Returns whether everything was reported. */
static bool transfer_tell_entries(struct ofi_conn *c, struct ofi_batch *batch)
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
    while (transfer_tell_entries(c, batch) && !ofi_batch_is_full(batch)) {
        c->entries_told = c->entries_count = 0;
        ssize_t count = fi_cq_read(c->cq, c->entries, OFI_COMPLETIONS_A_READ);
        if (count == -FI_EAVAIL) {
            completed_in_error(c, batch);
            continue;
        }
        if (count < 0) {
            if (count != -FI_EAGAIN)
                ofi_queue_fail(c, ofi_errno(count));
            return true;
        }
        c->entries_count = (size_t)count;
        if (count < OFI_COMPLETIONS_A_READ)
            return transfer_tell_entries(c, batch);
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
    ofi_queue_emit(batch, c, FABRIC_EVENT_ROOM);
    return true;
}
