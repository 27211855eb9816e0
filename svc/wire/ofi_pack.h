/* Small things of a connection that leave together, and what comes of a peer's (O13). */
#ifndef GRADPOOL_WIRE_OFI_PACK_H
#define GRADPOOL_WIRE_OFI_PACK_H

#include "svc/wire/ofi_conn.h"

/* Whether one more small thing is to be gathered: it is not among the first of its burst. */
bool ofi_pack_gathers(struct ofi_conn *c);
/* -EAGAIN: no room (ROOM follows). The payload is copied. */
int ofi_pack_message(struct ofi_conn *c, const void *header, size_t header_bytes,
                     const void *payload, size_t payload_bytes);
/* `op` is what ofi_pack_written() gives back when it is over. */
int ofi_pack_write(struct ofi_conn *c, struct ofi_op *op, const struct ofi_item_write *write,
                   bool has_word, const void *local, size_t bytes);
/* Sends what is gathered: before anything else is posted, so that order is kept. What is small and
 * comes next is the first of a burst again. */
int ofi_pack_end_burst(struct ofi_conn *c);
/* Of all connections. */
void ofi_pack_end_bursts(struct ofi_fabric *f);
/* A completion of a pack. */
void ofi_pack_over(struct ofi_conn *c, struct ofi_op *op, int error);
/* What is gathered will not be sent: its writes are over. */
void ofi_pack_abandon(struct ofi_conn *c);
/* The next packed write that is over; NULL: none. */
struct ofi_op *ofi_pack_written(struct ofi_conn *c);
/* A pack has come in the receive `op`. */
void ofi_unpack_begin(struct ofi_conn *c, struct ofi_op *op, const uint8_t *body, size_t bytes);
/* false: the batch is full. */
bool ofi_unpack(struct ofi_conn *c, struct ofi_batch *batch);

#endif
