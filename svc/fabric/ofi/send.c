/* Sends on one connection: the caller's messages, LEND and WITHDRAW of regions, GOODBYE. Owns the
 * ring of send buffers. Never blocks. A buffer is reused only after its send has ended, and a
 * payload is sent only if its memory is lent. README: O6, O7, O10, O13. */
#include "svc/fabric/ofi/send.h"

#include "svc/fabric/ofi/pack.h"
#include "svc/fabric/ofi/provider/queue.h"

#include <errno.h>
#include <rdma/fi_errno.h>
#include <string.h>

/* One of SENDS_A_COMPLETION sends requests a completion, which proves that all earlier sends have
 * ended, too (O10). */
#define SENDS_A_COMPLETION 16

_Static_assert(sizeof(struct ofi_frame) + sizeof(struct ofi_lend) <= OFI_SEND_BYTES, "fits");
_Static_assert(OFI_SENDS_MAX % SENDS_A_COMPLETION == 0, "a full ring has asked for completions");

/* --- the ring of buffers --------------------------------------------------------------------- */

/* Returns the next free buffer with the frame in it, or NULL if all buffers are in use. */
static struct ofi_op *send_next(struct ofi_conn *c, enum ofi_message_kind kind, uint32_t value)
{
    struct ofi_frame frame = {.kind = kind, .value = value};
    if (c->sends_head - c->sends_tail == OFI_SENDS_MAX)
        return NULL;
    struct ofi_op *op = &c->sends[c->sends_head % OFI_SENDS_MAX];
    memcpy(op->buffer, &frame, sizeof(frame));
    return op;
}

static void send_append(struct ofi_op *op, const void *bytes, size_t count)
{
    if (count > 0)
        memcpy(op->buffer + sizeof(struct ofi_frame), bytes, count);
}

/* Posts a send. If its completion is available at once, no descriptor reports the completion after
 * fi_trywait(). Therefore the next poll reads the queue (O5). */
static int send_post(struct ofi_conn *c, struct ofi_op *op, struct iovec *parts, void **descriptors,
                     size_t parts_count, bool is_last)
{
    struct fi_msg message = {
        .msg_iov = parts, .desc = descriptors, .iov_count = parts_count, .context = &op->provider};
    op->is_asked = is_last || (c->sends_head + 1) % SENDS_A_COMPLETION == 0;
    int error = (int)fi_sendmsg(c->ep, &message, op->is_asked ? FI_COMPLETION : 0);
    if (error != 0)
        return ofi_queue_post_failed(c, error);
    c->sends_head++;
    c->sends_asked += op->is_asked;
    if (op->is_asked)
        ofi_queue_activate(c);
    else
        ofi_queue_disarm(c);
    return 0;
}

/* Sends end in order, so all earlier sends have ended, too. A failed send is reported even without
 * a requested completion. */
void ofi_send_over(struct ofi_conn *c, struct ofi_op *op)
{
    unsigned place = (unsigned)(op - c->sends);
    unsigned done = (place - c->sends_tail) % OFI_SENDS_MAX + 1;
    if (done <= c->sends_head - c->sends_tail)
        c->sends_tail += done;
    c->sends_asked -= op->is_asked;
    op->is_asked = false;
}

/* --- messages -------------------------------------------------------------------------------- */

/* Sends an internal message: a frame and a few bytes. */
static int send_internal(struct ofi_conn *c, enum ofi_message_kind kind, uint32_t value,
                         const void *body, size_t body_bytes)
{
    int error = ofi_pack_end_burst(c);
    if (error < 0)
        return error;
    struct ofi_op *op = send_next(c, kind, value);
    if (op == NULL)
        return ofi_queue_no_room(c);
    send_append(op, body, body_bytes);
    struct iovec part = {.iov_base = op->buffer, .iov_len = sizeof(struct ofi_frame) + body_bytes};
    void *descriptor = ofi_queue_descriptor(c);
    return send_post(c, op, &part, &descriptor, 1, kind == OFI_MESSAGE_GOODBYE);
}

/* Returns the lent region that contains the whole payload, or NULL. */
static struct ofi_region *send_region_around(struct ofi_conn *c, const void *data, size_t bytes)
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

int ofi_send(struct ofi_conn *c, const void *header, size_t header_bytes, const void *payload,
             size_t payload_bytes)
{
    if (c->phase != OFI_OPEN)
        return ofi_queue_refuse(c);
    if (payload_bytes > c->hello.payload_bytes_max)
        return -EMSGSIZE;
    struct ofi_region *region =
        payload_bytes > 0 ? send_region_around(c, payload, payload_bytes) : NULL;
    if (payload_bytes > 0 && region == NULL)
        return -EINVAL;
    bool is_small = payload_bytes <= OFI_PACKED_BYTES_MAX;
    if (is_small && ofi_pack_gathers(c))
        return ofi_pack_message(c, header, header_bytes, payload, payload_bytes);
    int error = is_small ? 0 : ofi_pack_end_burst(c);
    if (error < 0)
        return error;
    struct ofi_op *op = send_next(c, OFI_MESSAGE_USER, 0);
    if (op == NULL)
        return ofi_queue_no_room(c);
    send_append(op, header, header_bytes);
    struct iovec parts[2] = {{op->buffer, sizeof(struct ofi_frame) + header_bytes},
                             {(void *)(uintptr_t)payload, payload_bytes}};
    void *descriptors[2] = {ofi_queue_descriptor(c), region ? fi_mr_desc(region->mr) : NULL};
    return send_post(c, op, parts, descriptors, region ? 2 : 1, false);
}

int ofi_send_goodbye(struct ofi_conn *c)
{
    return send_internal(c, OFI_MESSAGE_GOODBYE, 0, NULL, 0);
}

/* --- regions --------------------------------------------------------------------------------- */

int ofi_send_lend(struct ofi_conn *c, const struct region *region, uint32_t id)
{
    struct ofi_fabric *f = ofi_fabric_of(c);
    if (c->phase != OFI_OPEN)
        return ofi_queue_refuse(c);
    if (region->bytes == 0)
        return -EINVAL;
    if (c->lent[id] != NULL)
        return -EEXIST;
    struct ofi_region *lent;
    int error = ofi_memory_lend(f->memory, region, &lent);
    if (error < 0)
        return error;
    struct ofi_lend body = {.bytes = lent->bytes,
                            .address = ofi_region_address(f->memory, lent),
                            .key = fi_mr_key(lent->mr)};
    error = send_internal(c, OFI_MESSAGE_LEND, id, &body, sizeof(body));
    if (error < 0) {
        ofi_memory_return(lent);
        return error;
    }
    c->lent[id] = lent;
    return 0;
}

void ofi_send_withdraw(struct ofi_conn *c, uint32_t id)
{
    if (id >= FABRIC_REGIONS_MAX || c->lent[id] == NULL)
        return;
    uint64_t bit = UINT64_C(1) << id;
    int error = c->phase == OFI_OPEN ? send_internal(c, OFI_MESSAGE_WITHDRAW, id, NULL, 0) : 0;
    if (error == -EAGAIN) {
        c->withdraws |= bit;
        return;
    }
    c->withdraws &= ~bit;
    ofi_memory_return(c->lent[id]);
    c->lent[id] = NULL;
}

void ofi_send_withdraws(struct ofi_conn *c)
{
    uint64_t left = c->withdraws;
    for (uint32_t id = 0; left != 0; id++, left >>= 1)
        if (left & 1)
            ofi_send_withdraw(c, id);
}
