/* Queue of a connection of fabric_ofi. Posts receives, manages slots, adds the connection to the
 * list that polls read, and shuts it down. Never blocks. This file calls no file that posts other
 * operations. */
#include "svc/fabric/ofi/provider/queue.h"

#include "svc/base/clock.h"
#include "svc/fabric/ofi/provider/listen.h"
#include "svc/fabric/ofi/provider/names.h"
#include "svc/fabric/ofi/provider/turn.h"

#include <errno.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#define LINE_BYTES 64

_Static_assert(OFI_SEND_BYTES % LINE_BYTES == 0, "send buffers start on cache lines");

/* --- reading --------------------------------------------------------------------------------- */

struct fabric_event *ofi_queue_emit(struct ofi_batch *batch, struct ofi_conn *c,
                                    enum fabric_event_kind kind)
{
    struct fabric_event *e = &batch->events[batch->count++];
    *e = (struct fabric_event){.kind = kind, .conn = &c->base, .owner = c->owner};
    return e;
}

int ofi_queue_fd(const struct ofi_conn *c)
{
    int fd;
    return c->cq != NULL && fi_control(&c->cq->fid, FI_GETWAIT, &fd) == 0 ? fd : -1;
}

void ofi_queue_disarm(struct ofi_conn *c)
{
    if (c->phase != OFI_GONE)
        ofi_turn_begin(c);
}

void ofi_queue_activate(struct ofi_conn *c)
{
    c->is_due = true;
    ofi_queue_disarm(c);
}

/* --- slots ----------------------------------------------------------------------------------- */

/* Divides the buffers into slots. A receive slot begins one frame length before a cache line, so
 * that the message behind the frame begins at the line. Payloads behind the fixed records are then
 * aligned for the sums that read them in place. */
static void queue_lay_out(struct ofi_conn *c, size_t stride)
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
        ofi_queue_free_transfer(c, &c->transfers[i]);
}

/* Posts a receive. While no receive was posted, the provider may have read a message and kept it.
 * No descriptor reports such a message, so the queue must be read before the next sleep (O5). */
static int queue_post_receive(struct ofi_conn *c, struct ofi_op *op)
{
    int error = (int)fi_recv(c->ep, op->buffer, c->receive_bytes, ofi_queue_descriptor(c), 0,
                             &op->provider);
    if (error != 0)
        return error;
    if (c->receives_posted++ == 0)
        ofi_queue_activate(c);
    else
        ofi_queue_disarm(c);
    return 0;
}

int ofi_queue_prepare(struct ofi_conn *c)
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
    int error = ofi_memory_register_local(f->memory, c->buffers, bytes, &c->buffers_mr);
    if (error < 0)
        return error;
    queue_lay_out(c, stride);
    for (int i = 0; i < OFI_RECEIVES && error == 0; i++)
        error = queue_post_receive(c, &c->receives[i]);
    return ofi_errno(error);
}

/* Posts the receive again, unless the endpoint has ended. For an ended endpoint libfabric 2 returns
 * EAGAIN. While a receive is posted, the connection is not ended here: messages from before the end
 * must still be read, and the provider returns the posted receives at the end. If no receive is
 * posted, this function ends the connection with -ECONNRESET. */
void ofi_queue_repost(struct ofi_conn *c, struct ofi_op *op)
{
    if (c->ep == NULL || c->is_shut)
        return;
    int error = queue_post_receive(c, op);
    if (error == -FI_EAGAIN && c->receives_posted == 0)
        ofi_queue_fail(c, -ECONNRESET);
    else if (error != 0 && error != -FI_EAGAIN)
        ofi_queue_fail(c, ofi_errno(error));
}

void ofi_queue_message_done(struct ofi_conn *c, const void *data)
{
    for (int i = 0; i < OFI_RECEIVES; i++) {
        struct ofi_op *op = &c->receives[i];
        size_t at = (uintptr_t)data - (uintptr_t)op->buffer;
        if (op->held == 0 || at >= c->receive_bytes)
            continue;
        if (--op->held == 0 && op != c->unpacking.op)
            ofi_queue_repost(c, op);
        return;
    }
}

void ofi_queue_finish_pack(struct ofi_conn *c, struct ofi_pack *p, int error)
{
    for (struct ofi_op *op = p->writes; op != NULL; op = op->next_free)
        op->error = error;
    *c->written_end = p->writes;
    if (p->writes != NULL)
        c->written_end = p->writes_end;
    p->writes = NULL;
    p->is_posted = false;
}

/* --- errors of functions --------------------------------------------------------------------- */

int ofi_queue_refuse(const struct ofi_conn *c)
{
    return c->phase == OFI_OPENING || c->phase == OFI_REQUESTED ? -ENOTCONN : -ECONNRESET;
}

int ofi_queue_no_room(struct ofi_conn *c)
{
    c->wants_room = true;
    return -EAGAIN;
}

/* Returns the error of a post that failed. If the provider returns EAGAIN although no operation is
 * posted, another resource is missing. Then no later completion can show that the post is possible,
 * so the next poll tries again. */
int ofi_queue_post_failed(struct ofi_conn *c, int error)
{
    if (error != -FI_EAGAIN)
        return ofi_errno(error);
    if (c->sends_asked + c->packs_posted + c->transfers_posted == 0) {
        c->has_room = true;
        ofi_queue_activate(c);
    }
    return ofi_queue_no_room(c);
}

/* --- the end --------------------------------------------------------------------------------- */

void ofi_queue_set_timer(struct ofi_fabric *f, uint64_t when_ns)
{
    if (f->timer_ns != 0 && f->timer_ns <= when_ns)
        return;
    struct itimerspec when = {.it_value = {.tv_sec = (time_t)(when_ns / NS_PER_S),
                                           .tv_nsec = (long)(when_ns % NS_PER_S)}};
    timerfd_settime(f->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
    f->timer_ns = when_ns;
}

void ofi_queue_set_deadline(struct ofi_conn *c)
{
    c->deadline_ns = clock_now_ns() + OFI_CLOSE_NS;
    ofi_queue_set_timer(ofi_fabric_of(c), c->deadline_ns);
}

static void queue_abandon_pack(struct ofi_conn *c)
{
    if (c->pack != NULL)
        ofi_queue_finish_pack(c, c->pack, -ECONNRESET);
    c->pack = NULL;
}

/* Shuts down the socket below the provider. The provider then ends the endpoint as after an error,
 * and still reads the bytes that arrived before (O2). If these bytes cannot be checked by the
 * guard, the provider closes the endpoint without reading them (O12). */
void ofi_queue_cut(struct ofi_conn *c)
{
    c->phase = OFI_ENDING;
    queue_abandon_pack(c);
    ofi_queue_set_deadline(c);
    ofi_queue_activate(c);
    if (c->is_shut)
        return;
    if (c->socket_fd < 0)
        c->socket_fd = ofi_socket_find(c->ep);
    if (c->socket_fd >= 0 && (c->is_guarded || !ofi_listener_guards(c)))
        shutdown(c->socket_fd, SHUT_RDWR);
    else
        fi_shutdown(c->ep, 0);
}

void ofi_queue_fail(struct ofi_conn *c, int error)
{
    if (c->phase >= OFI_ENDING)
        return;
    c->error = error;
    ofi_queue_cut(c);
}
