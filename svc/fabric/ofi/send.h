/* Messages that a connection of fabric_ofi sends. */
#ifndef GRADPOOL_FABRIC_OFI_SEND_H
#define GRADPOOL_FABRIC_OFI_SEND_H

#include "svc/fabric/ofi/provider/types.h"

/* Implement fabric_send(), fabric_lend() and fabric_withdraw(). */
int ofi_send(struct ofi_conn *c, const void *header, size_t header_bytes, const void *payload,
             size_t payload_bytes);
int ofi_send_lend(struct ofi_conn *c, const struct region *region, uint32_t id);
void ofi_send_withdraw(struct ofi_conn *c, uint32_t id);
/* Sends the WITHDRAWs that were postponed because the queue was full. */
void ofi_send_withdraws(struct ofi_conn *c);
int ofi_send_goodbye(struct ofi_conn *c);
/* Called at the completion of a send. Frees the buffers of this send and of all earlier sends,
 * which have ended, too. */
void ofi_send_over(struct ofi_conn *c, struct ofi_op *op);

#endif
