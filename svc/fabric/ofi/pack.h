/* Pack: small messages and writes of a connection that are sent together as one message (O13). */
#ifndef GRADPOOL_FABRIC_OFI_PACK_H
#define GRADPOOL_FABRIC_OFI_PACK_H

#include "svc/fabric/ofi/message/item.h"
#include "svc/fabric/ofi/provider/types.h"

/* Returns whether a small operation is added to a pack. The first operations of a burst are sent
 * alone. */
bool ofi_pack_gathers(struct ofi_conn *c);
/* Adds a message to the pack. The payload is copied. Returns 0, or -EAGAIN if there is no room
 * (ROOM follows). */
int ofi_pack_message(struct ofi_conn *c, const void *header, size_t header_bytes,
                     const void *payload, size_t payload_bytes);
/* Adds a write to the pack. ofi_pack_written() returns `op` when the write has ended. Returns 0, or
 * -EAGAIN if there is no room. */
int ofi_pack_write(struct ofi_conn *c, struct ofi_op *op, const struct ofi_item_write *write,
                   bool has_word, const void *local, size_t bytes);
/* Sends the pack. Called before any other operation is posted, so that the order is kept. The next
 * small operation begins a new burst. */
int ofi_pack_end_burst(struct ofi_conn *c);
/* Ends the bursts of all connections. */
void ofi_pack_end_bursts(struct ofi_fabric *f);
/* Called when the send of a pack has ended. Ends the writes in the pack with `error`. */
void ofi_pack_over(struct ofi_conn *c, struct ofi_op *op, int error);
/* Returns the next packed write that has ended, or NULL. */
struct ofi_op *ofi_pack_written(struct ofi_conn *c);
/* Begins to read the pack in the receive buffer `op`. */
void ofi_unpack_begin(struct ofi_conn *c, struct ofi_op *op, const uint8_t *body, size_t bytes);
/* Continues to read the current pack. Returns false if the batch is full. */
bool ofi_unpack(struct ofi_conn *c, struct ofi_batch *batch);

#endif
