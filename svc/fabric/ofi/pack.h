/* Packs: small messages and writes of a connection that leave together, and those of a peer (O13).
 */
#ifndef GRADPOOL_FABRIC_OFI_PACK_H
#define GRADPOOL_FABRIC_OFI_PACK_H

#include "svc/fabric/ofi/message/item.h"
#include "svc/fabric/ofi/provider/types.h"

/* Whether a small post is to be gathered: it is not among the first of its burst. */
bool ofi_pack_gathers(struct ofi_conn *c);
/* -EAGAIN: no room (ROOM follows). The payload is copied. */
int ofi_pack_message(struct ofi_conn *c, const void *header, size_t header_bytes,
                     const void *payload, size_t payload_bytes);
/* ofi_pack_written() returns `op` when the write is over. -EAGAIN as above. */
int ofi_pack_write(struct ofi_conn *c, struct ofi_op *op, const struct ofi_item_write *write,
                   bool has_word, const void *local, size_t bytes);
/* Sends the gathered posts: before any other post, so that the order is kept. The next small post
 * is the first of a burst. */
int ofi_pack_end_burst(struct ofi_conn *c);
/* Ends the bursts of all connections. */
void ofi_pack_end_bursts(struct ofi_fabric *f);
/* On a completion of a pack. */
void ofi_pack_over(struct ofi_conn *c, struct ofi_op *op, int error);
/* The next packed write that is over; NULL: none. */
struct ofi_op *ofi_pack_written(struct ofi_conn *c);
/* Starts to take apart the pack in the receive `op`. */
void ofi_unpack_begin(struct ofi_conn *c, struct ofi_op *op, const uint8_t *body, size_t bytes);
/* Takes on; false: the batch is full. */
bool ofi_unpack(struct ofi_conn *c, struct ofi_batch *batch);

#endif
