/* The queue of a connection of fabric_ofi: its buffers and slots, its membership in the list that
 * polls read, and the cut that ends it. This is the lowest of the files that handle a
 * connection. */
#ifndef GRADPOOL_FABRIC_OFI_PROVIDER_QUEUE_H
#define GRADPOOL_FABRIC_OFI_PROVIDER_QUEUE_H

#include "svc/fabric/ofi/provider/types.h"

/* --- reading ---------------------------------------------------------------------------------- */

/* Adds an event of this connection to the batch, which must have space. */
struct fabric_event *ofi_queue_emit(struct ofi_batch *batch, struct ofi_conn *c,
                                    enum fabric_event_kind kind);
/* From now on polls read the queue, until it is armed again. Needed when an operation was posted,
 * or when the queue's descriptor has fired (O5). */
void ofi_queue_disarm(struct ofi_conn *c);
/* Returns the queue's descriptor; -1: none. */
int ofi_queue_fd(const struct ofi_conn *c);
/* Like ofi_queue_disarm(). In addition the next poll has to come before any sleep, because there is
 * work. */
void ofi_queue_activate(struct ofi_conn *c);

/* --- slots ------------------------------------------------------------------------------------ */

/* Lays out the buffers, and posts the receives on a new endpoint. -ENOMEM, or the provider's
 * error. */
int ofi_queue_prepare(struct ofi_conn *c);
/* Returns a receive to the provider when all its messages are done. */
void ofi_queue_repost(struct ofi_conn *c, struct ofi_op *op);
void ofi_queue_message_done(struct ofi_conn *c, const void *data);

/* Takes a slot for a read or write. NULL: all are in use. */
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

/* Marks the writes of a pack as ended, because the pack has ended or will never leave. They are
 * reported later. */
void ofi_queue_finish_pack(struct ofi_conn *c, struct ofi_pack *p, int error);

/* Returns the descriptor of the connection's own buffers, for posts. NULL where none is needed. */
static inline void *ofi_queue_descriptor(const struct ofi_conn *c)
{
    return c->buffers_mr ? fi_mr_desc(c->buffers_mr) : NULL;
}

/* --- errors of verbs -------------------------------------------------------------------------- */

/* Returns the error of a call on a connection that is not open. */
int ofi_queue_refuse(const struct ofi_conn *c);
/* Returns -EAGAIN, because all slots are in use; ROOM follows. */
int ofi_queue_no_room(struct ofi_conn *c);
/* Returns the error of a post that the provider has refused with `r`. */
int ofi_queue_post_failed(struct ofi_conn *c, int r);

/* --- the end ---------------------------------------------------------------------------------- */

/* Makes the timer fire at `when_ns` or earlier, for connections that have a deadline. */
void ofi_queue_set_timer(struct ofi_fabric *f, uint64_t when_ns);
/* Gives the connection OFI_CLOSE_NS from now to get its operations back. */
void ofi_queue_set_deadline(struct ofi_conn *c);
/* Ends the connection: cuts its socket, after which posted operations come back (O2). */
void ofi_queue_cut(struct ofi_conn *c);
/* Ends a connection that this end has found broken. CLOSED will have `error`. */
void ofi_queue_fail(struct ofi_conn *c, int error);

#endif
