/* Queue of a connection of fabric_ofi: its buffers and slots, its node in the list of connections
 * that polls read, and its end. Other files of the connection call this file, and this file calls
 * none of them. */
#ifndef GRADPOOL_FABRIC_OFI_PROVIDER_QUEUE_H
#define GRADPOOL_FABRIC_OFI_PROVIDER_QUEUE_H

#include "svc/fabric/ofi/provider/types.h"

/* --- reading ---------------------------------------------------------------------------------- */

/* Adds an event of this connection to the batch, which must have room. */
struct fabric_event *ofi_queue_emit(struct ofi_batch *batch, struct ofi_conn *c,
                                    enum fabric_event_kind kind);
/* Makes polls read the queue until it is armed again. Called when an operation was posted, or the
 * queue's descriptor is readable (O5). */
void ofi_queue_disarm(struct ofi_conn *c);
/* Returns the queue's descriptor, or -1. */
int ofi_queue_fd(const struct ofi_conn *c);
/* Like ofi_queue_disarm(). In addition, the next poll must happen before the thread sleeps, because
 * work is pending. */
void ofi_queue_activate(struct ofi_conn *c);

/* --- slots ------------------------------------------------------------------------------------ */

/* Divides the buffers, and posts the receives on a new endpoint. Returns 0, -ENOMEM or an error of
 * the provider. */
int ofi_queue_prepare(struct ofi_conn *c);
/* Posts a receive again once the caller has returned all its messages. */
void ofi_queue_repost(struct ofi_conn *c, struct ofi_op *op);
void ofi_queue_message_done(struct ofi_conn *c, const void *data);

/* Returns a free slot for a read or write, or NULL if all are in use. */
static inline struct ofi_op *ofi_queue_take_transfer(struct ofi_conn *c)
{
    struct ofi_op *op = c->free_transfers;
    if (op != NULL)
        c->free_transfers = op->next_free;
    return op;
}

static inline void ofi_queue_free_transfer(struct ofi_conn *c, struct ofi_op *op)
{
    op->next_free = c->free_transfers;
    c->free_transfers = op;
}

/* Marks the writes of a pack as ended, because the pack has ended or will never be sent. The ends
 * of these writes are reported later. */
void ofi_queue_finish_pack(struct ofi_conn *c, struct ofi_pack *p, int error);

/* Returns the descriptor of the connection's own buffers, or NULL if the provider requires none. */
static inline void *ofi_queue_descriptor(const struct ofi_conn *c)
{
    return c->buffers_mr ? fi_mr_desc(c->buffers_mr) : NULL;
}

/* --- errors of functions ---------------------------------------------------------------------- */

/* Returns the error of a function for a connection that is not open. */
int ofi_queue_refuse(const struct ofi_conn *c);
/* Returns -EAGAIN because all slots are in use. ROOM follows. */
int ofi_queue_no_room(struct ofi_conn *c);
/* Returns the error of a function that posts an operation, after the provider has returned `r`. */
int ofi_queue_post_failed(struct ofi_conn *c, int r);

/* --- the end ---------------------------------------------------------------------------------- */

/* Sets the timer to `when_ns`, unless it fires earlier. Used for deadlines of connections. */
void ofi_queue_set_timer(struct ofi_fabric *f, uint64_t when_ns);
/* Sets the connection's deadline to OFI_CLOSE_NS from now. Posted operations should end before the
 * deadline. */
void ofi_queue_set_deadline(struct ofi_conn *c);
/* Ends the connection by shutting down its socket. Posted operations then end (O2). */
void ofi_queue_cut(struct ofi_conn *c);
/* Ends a connection in which this end has detected an error. CLOSED will have `error`. */
void ofi_queue_fail(struct ofi_conn *c, int error);

#endif
