/* The queue of a connection of fabric_ofi: its buffers and slots, its place on the list that polls
 * read, and the cut that ends it. The lowest of the files that handle a connection. */
#ifndef GRADPOOL_FABRIC_OFI_PROVIDER_QUEUE_H
#define GRADPOOL_FABRIC_OFI_PROVIDER_QUEUE_H

#include "svc/fabric/ofi/provider/types.h"

/* --- reading ---------------------------------------------------------------------------------- */

/* Appends an event of this connection; the batch must have space. */
struct fabric_event *ofi_queue_emit(struct ofi_batch *batch, struct ofi_conn *c,
                                    enum fabric_event_kind kind);
/* Polls read the queue until it is armed again: an operation was posted, or the queue's descriptor
 * has fired (O5). */
void ofi_queue_disarm(struct ofi_conn *c);
/* The queue's descriptor; -1: none. */
int ofi_queue_fd(const struct ofi_conn *c);
/* As ofi_queue_disarm(), and the next poll must come before any sleep: there is work. */
void ofi_queue_activate(struct ofi_conn *c);

/* --- slots ------------------------------------------------------------------------------------ */

/* Lays out buffers and posts the receives on a new endpoint. -ENOMEM, or the provider's error. */
int ofi_queue_prepare(struct ofi_conn *c);
/* Gives a receive back to the provider once all its messages are done. */
void ofi_queue_repost(struct ofi_conn *c, struct ofi_op *op);
void ofi_queue_message_done(struct ofi_conn *c, const void *data);

/* A slot of a read or write; NULL: all are taken. */
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

/* The writes of a pack that is over, or will never leave, wait to be reported. */
void ofi_queue_finish_pack(struct ofi_conn *c, struct ofi_pack *p, int error);

/* The descriptor of the connection's own buffers, for posts; NULL where none is needed. */
static inline void *ofi_queue_descriptor(const struct ofi_conn *c)
{
    return c->buffers_mr ? fi_mr_desc(c->buffers_mr) : NULL;
}

/* --- errors of verbs -------------------------------------------------------------------------- */

/* On a connection that is not open. */
int ofi_queue_refuse(const struct ofi_conn *c);
/* When all slots are taken: -EAGAIN; ROOM follows. */
int ofi_queue_no_room(struct ofi_conn *c);
/* When the provider has refused a post with `r`. */
int ofi_queue_post_failed(struct ofi_conn *c, int r);

/* --- the end ---------------------------------------------------------------------------------- */

/* Lets the timer fire at `when_ns` or earlier, for connections that have a deadline. */
void ofi_queue_set_timer(struct ofi_fabric *f, uint64_t when_ns);
/* The connection has OFI_CLOSE_NS from now on to get its operations back. */
void ofi_queue_set_deadline(struct ofi_conn *c);
/* Ends the connection: its socket is cut, and posted operations come back (O2). */
void ofi_queue_cut(struct ofi_conn *c);
/* Ends a connection that is broken as this end sees it; CLOSED will have `error`. */
void ofi_queue_fail(struct ofi_conn *c, int error);

#endif
