/* Moves data over one connection: posts sends, reads and writes, and turns completions into events.
 * Owns the operations' slots. Must never wait, never loop on -FI_EAGAIN, and never trust a length,
 * an id or a message kind that a peer sent. */
#include "svc/wire/ofi_conn.h"

#include "svc/base/clock.h"

#include <errno.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 64
#define SEND_BYTES (sizeof(struct ofi_frame) + FABRIC_MESSAGE_BYTES_MAX)
#define COMPLETIONS_A_READ 16

_Static_assert(SEND_BYTES % LINE_BYTES == 0, "send buffers start on cache lines");
_Static_assert(sizeof(struct ofi_frame) + sizeof(struct ofi_lend) <= SEND_BYTES, "fits a buffer");

/* --- buffers and slots ----------------------------------------------------------------------- */

struct fabric_event *ofi_emit(struct ofi_batch *batch, struct ofi_conn *c,
                              enum fabric_event_kind kind)
{
    struct fabric_event *e = &batch->events[batch->count++];
    *e = (struct fabric_event){.kind = kind, .conn = &c->base, .owner = c->owner};
    return e;
}

static void op_free(struct ofi_op **list, struct ofi_op *op)
{
    op->next_free = *list;
    *list = op;
}

static struct ofi_op *op_take(struct ofi_op **list)
{
    struct ofi_op *op = *list;
    if (op != NULL)
        *list = op->next_free;
    return op;
}

static void *buffers_descriptor(const struct ofi_conn *c)
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
    for (int i = OFI_SENDS_MAX - 1; i >= 0; i--) {
        c->sends[i] =
            (struct ofi_op){.kind = OFI_OP_SEND,
                            .buffer = c->buffers + OFI_RECEIVES * stride + (size_t)i * SEND_BYTES};
        op_free(&c->free_sends, &c->sends[i]);
    }
    for (int i = OFI_TRANSFERS_MAX - 1; i >= 0; i--)
        op_free(&c->free_transfers, &c->transfers[i]);
}

static int post_receive(struct ofi_conn *c, struct ofi_op *op)
{
    op->is_held = false;
    ofi_conn_disarm(c);
    return (int)fi_recv(c->ep, op->buffer, c->receive_bytes, buffers_descriptor(c), 0,
                        &op->provider);
}

int ofi_transfer_prepare(struct ofi_conn *c)
{
    struct ofi_fabric *f = ofi_fabric_of(c);
    c->receive_bytes = SEND_BYTES + f->payload_bytes_max;
    size_t stride = LINE_BYTES + (c->receive_bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    size_t bytes = OFI_RECEIVES * stride + OFI_SENDS_MAX * SEND_BYTES;
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

/* Gives a receive back to the provider; on an endpoint that has ended it stays with us. */
static void repost(struct ofi_conn *c, struct ofi_op *op)
{
    op->is_held = false;
    if (c->ep == NULL || c->is_shut)
        return;
    int r = post_receive(c, op);
    if (r != 0)
        ofi_conn_fail(c, ofi_errno(r));
}

void ofi_transfer_message_done(struct ofi_conn *c, const void *data)
{
    for (int i = 0; i < OFI_RECEIVES; i++)
        if (c->receives[i].is_held && c->receives[i].buffer + sizeof(struct ofi_frame) == data)
            repost(c, &c->receives[i]);
}

/* --- posting --------------------------------------------------------------------------------- */

static int refuse_verb(const struct ofi_conn *c)
{
    return c->phase == OFI_OPENING || c->phase == OFI_REQUESTED ? -ENOTCONN : -ECONNRESET;
}

static int no_room(struct ofi_conn *c)
{
    c->wants_room = true;
    return -EAGAIN;
}

/* What to say after the provider refused a post. Full with nothing posted of ours means that it
 * ran out of something else: then no completion would tell, so the next poll does. */
static int post_failed(struct ofi_conn *c, int r)
{
    if (r != -FI_EAGAIN)
        return ofi_errno(r);
    if (c->sends_posted + c->transfers_posted == 0) {
        c->has_room = true;
        ofi_conn_activate(c);
    }
    return no_room(c);
}

static int post_send(struct ofi_conn *c, struct ofi_op *op, struct iovec *parts, void **descriptors,
                     size_t parts_count, uint64_t flags)
{
    struct fi_msg message = {
        .msg_iov = parts, .desc = descriptors, .iov_count = parts_count, .context = &op->provider};
    int r = (int)fi_sendmsg(c->ep, &message, FI_COMPLETION | flags);
    if (r != 0) {
        op_free(&c->free_sends, op);
        return post_failed(c, r);
    }
    c->sends_posted++;
    ofi_conn_disarm(c);
    return 0;
}

/* Sends one of our own messages: a frame and at most a few bytes. */
static int send_internal(struct ofi_conn *c, enum ofi_message_kind kind, uint32_t value,
                         const void *body, size_t body_bytes)
{
    struct ofi_op *op = op_take(&c->free_sends);
    if (op == NULL)
        return no_room(c);
    struct ofi_frame frame = {.kind = kind, .value = value};
    memcpy(op->buffer, &frame, sizeof(frame));
    if (body_bytes > 0)
        memcpy(op->buffer + sizeof(frame), body, body_bytes);
    op->is_notify = false;
    struct iovec part = {.iov_base = op->buffer, .iov_len = sizeof(frame) + body_bytes};
    void *descriptor = buffers_descriptor(c);
    return post_send(c, op, &part, &descriptor, 1, 0);
}

/* The lent region that holds all of the payload, or NULL. */
static struct ofi_region *region_around(struct ofi_conn *c, const void *data, size_t bytes)
{
    for (int i = 0; i < FABRIC_REGIONS_MAX; i++) {
        struct ofi_region *r = c->lent[i];
        if (r == NULL || (uintptr_t)data < (uintptr_t)r->base || bytes > r->bytes)
            continue;
        if ((uintptr_t)data - (uintptr_t)r->base <= r->bytes - bytes)
            return r;
    }
    return NULL;
}

int ofi_transfer_send(struct ofi_conn *c, const void *header, size_t header_bytes,
                      const void *payload, size_t payload_bytes)
{
    if (c->phase != OFI_OPEN)
        return refuse_verb(c);
    if (payload_bytes > c->peer_payload_bytes_max)
        return -EMSGSIZE;
    struct ofi_region *region = payload_bytes > 0 ? region_around(c, payload, payload_bytes) : NULL;
    if (payload_bytes > 0 && region == NULL)
        return -EINVAL;
    struct ofi_op *op = op_take(&c->free_sends);
    if (op == NULL)
        return no_room(c);
    struct ofi_frame frame = {.kind = OFI_MESSAGE_USER};
    memcpy(op->buffer, &frame, sizeof(frame));
    if (header_bytes > 0)
        memcpy(op->buffer + sizeof(frame), header, header_bytes);
    op->is_notify = false;
    struct iovec parts[2] = {{op->buffer, sizeof(frame) + header_bytes},
                             {(void *)(uintptr_t)payload, payload_bytes}};
    void *descriptors[2] = {buffers_descriptor(c), region ? fi_mr_desc(region->mr) : NULL};
    return post_send(c, op, parts, descriptors, region ? 2 : 1, 0);
}

int ofi_transfer_goodbye(struct ofi_conn *c)
{
    return send_internal(c, OFI_MESSAGE_GOODBYE, 0, NULL, 0);
}

int ofi_transfer_notify(struct ofi_conn *c, uint32_t word, void *context)
{
    if (c->phase != OFI_OPEN)
        return refuse_verb(c);
    struct ofi_op *op = op_take(&c->free_sends);
    if (op == NULL)
        return no_room(c);
    struct ofi_frame frame = {.kind = OFI_MESSAGE_NOTIFY, .value = word};
    memcpy(op->buffer, &frame, sizeof(frame));
    op->is_notify = true;
    op->context = context;
    struct iovec part = {.iov_base = op->buffer, .iov_len = sizeof(frame)};
    void *descriptor = buffers_descriptor(c);
    return post_send(c, op, &part, &descriptor, 1, ofi_fabric_of(c)->landed_flags);
}

static int post_transfer(struct ofi_conn *c, const struct ofi_op *like, struct fi_msg_rma *message,
                         uint64_t flags)
{
    struct ofi_op *op = op_take(&c->free_transfers);
    if (op == NULL)
        return no_room(c);
    *op = *like;
    message->context = &op->provider;
    int r = (int)(op->kind == OFI_OP_READ ? fi_readmsg(c->ep, message, flags)
                                          : fi_writemsg(c->ep, message, flags));
    if (r != 0) {
        op_free(&c->free_transfers, op);
        return post_failed(c, r);
    }
    c->transfers_posted++;
    ofi_conn_disarm(c);
    return 0;
}

static int transfer(struct ofi_conn *c, uint32_t id, uint64_t offset, void *local, size_t bytes,
                    const struct ofi_op *like, uint64_t flags, uint64_t data)
{
    if (c->phase != OFI_OPEN)
        return refuse_verb(c);
    if (id >= FABRIC_REGIONS_MAX)
        return -EFAULT;
    const struct ofi_foreign *there = &c->foreign[id];
    if (there->bytes == 0 || offset > there->bytes || bytes > there->bytes - offset)
        return -EFAULT;
    struct iovec here = {.iov_base = local, .iov_len = bytes};
    struct fi_rma_iov remote = {.addr = there->address + offset, .len = bytes, .key = there->key};
    void *descriptor = ofi_memory_descriptor(&ofi_fabric_of(c)->memory, local);
    struct fi_msg_rma message = {.msg_iov = &here,
                                 .desc = &descriptor,
                                 .iov_count = 1,
                                 .rma_iov = &remote,
                                 .rma_iov_count = 1,
                                 .data = data};
    return post_transfer(c, like, &message, FI_COMPLETION | flags);
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

/* --- regions --------------------------------------------------------------------------------- */

int ofi_transfer_lend(struct ofi_conn *c, const struct region *region, uint32_t id)
{
    struct ofi_fabric *f = ofi_fabric_of(c);
    if (c->phase != OFI_OPEN)
        return refuse_verb(c);
    if (region->bytes == 0)
        return -EINVAL;
    if (c->lent[id] != NULL)
        return -EEXIST;
    struct ofi_region *lent;
    int r = ofi_memory_lend(&f->memory, region, &lent);
    if (r < 0)
        return r;
    struct ofi_lend body = {.bytes = lent->bytes,
                            .address = ofi_region_address(&f->memory, lent),
                            .key = fi_mr_key(lent->mr)};
    r = send_internal(c, OFI_MESSAGE_LEND, id, &body, sizeof(body));
    if (r < 0) {
        ofi_memory_return(lent);
        return r;
    }
    c->lent[id] = lent;
    return 0;
}

void ofi_transfer_withdraw(struct ofi_conn *c, uint32_t id)
{
    if (id >= FABRIC_REGIONS_MAX || c->lent[id] == NULL)
        return;
    uint64_t bit = UINT64_C(1) << id;
    int r = c->phase == OFI_OPEN ? send_internal(c, OFI_MESSAGE_WITHDRAW, id, NULL, 0) : 0;
    if (r == -EAGAIN) {
        c->withdraws |= bit;
        return;
    }
    c->withdraws &= ~bit;
    ofi_memory_return(c->lent[id]);
    c->lent[id] = NULL;
}

static void retry_withdraws(struct ofi_conn *c)
{
    uint64_t left = c->withdraws;
    for (uint32_t id = 0; left != 0; id++, left >>= 1)
        if (left & 1)
            ofi_transfer_withdraw(c, id);
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
    if (bytes >= sizeof(frame) && bytes <= c->receive_bytes)
        memcpy(&frame, op->buffer, sizeof(frame));
    const uint8_t *body = op->buffer + sizeof(frame);
    if (frame.kind == OFI_MESSAGE_USER && !c->is_ours) {
        op->is_held = true;
        struct fabric_event *e = ofi_emit(batch, c, FABRIC_EVENT_MESSAGE);
        e->data = body;
        e->bytes = bytes - sizeof(frame);
        return;
    }
    if (frame.kind != OFI_MESSAGE_USER)
        internal_arrived(c, &frame, body, bytes - sizeof(frame), batch);
    repost(c, op);
}

static void operation_over(struct ofi_conn *c, struct ofi_op *op, int error,
                           struct ofi_batch *batch)
{
    bool is_told = op->kind != OFI_OP_SEND || op->is_notify;
    if (op->kind == OFI_OP_SEND) {
        op_free(&c->free_sends, op);
        c->sends_posted--;
    } else {
        op_free(&c->free_transfers, op);
        c->transfers_posted--;
    }
    c->has_room = c->wants_room;
    if (!is_told)
        return;
    struct fabric_event *e =
        ofi_emit(batch, c, op->kind == OFI_OP_READ ? FABRIC_EVENT_READ : FABRIC_EVENT_WRITTEN);
    e->context = op->context;
    e->error = error;
}

static void completed(struct ofi_conn *c, const struct fi_cq_data_entry *entry,
                      struct ofi_batch *batch)
{
    struct ofi_op *op = entry->op_context;
    if (entry->flags & FI_REMOTE_WRITE) {
        word_arrived(c, (uint32_t)entry->data, batch);
        /* With FI_RX_CQ_DATA the word has used up a receive. */
        if (ofi_fabric_of(c)->info->mode & FI_RX_CQ_DATA)
            repost(c, op);
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

static bool drain_queue(struct ofi_conn *c, struct ofi_batch *batch)
{
    while (!ofi_batch_is_full(batch)) {
        struct fi_cq_data_entry entries[COMPLETIONS_A_READ];
        int space = batch->events_max - batch->count;
        size_t asked = space < COMPLETIONS_A_READ ? (size_t)space : COMPLETIONS_A_READ;
        ssize_t count = fi_cq_read(c->cq, entries, asked);
        if (count == -FI_EAVAIL) {
            completed_in_error(c, batch);
            continue;
        }
        if (count < 0) {
            if (count != -FI_EAGAIN)
                ofi_conn_fail(c, ofi_errno(count));
            return true;
        }
        for (ssize_t i = 0; i < count; i++)
            completed(c, &entries[i], batch);
    }
    return false;
}

bool ofi_transfer_drain(struct ofi_conn *c, struct ofi_batch *batch)
{
    if (!drain_queue(c, batch))
        return false;
    if (!c->has_room || c->phase != OFI_OPEN)
        return true;
    retry_withdraws(c);
    if (ofi_batch_is_full(batch))
        return false;
    c->has_room = c->wants_room = false;
    ofi_emit(batch, c, FABRIC_EVENT_ROOM);
    return true;
}
