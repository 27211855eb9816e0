/* A connection of fabric_ofi: connecting, accepting, opening, ending. */
#ifndef GRADPOOL_FABRIC_OFI_CONN_H
#define GRADPOOL_FABRIC_OFI_CONN_H

#include "svc/fabric/ofi/provider/types.h"

int ofi_conn_connect(struct ofi_fabric *f, const char *address, const void *ticket,
                     size_t ticket_bytes, void *owner, struct ofi_conn **ret_conn);
/* Creates a connection for a peer's request. Owns `info`. Returns NULL if the request is malformed
 * or memory is missing; the peer was rejected then. */
struct ofi_conn *ofi_conn_request(struct ofi_fabric *f, struct fi_info *info, const void *data,
                                  size_t data_bytes);
int ofi_conn_accept(struct ofi_conn *c, void *owner);
void ofi_conn_refuse(struct ofi_conn *c, int reason);
/* Called at FI_CONNECTED. Returns true if the connection is now open, so that OPEN has to be
 * reported. */
bool ofi_conn_connected(struct ofi_conn *c, const void *data, size_t data_bytes);
/* Called at FI_SHUTDOWN or after an error of the endpoint. Shuts down the socket; CLOSED follows
 * with the first error. */
void ofi_conn_shut(struct ofi_conn *c, int error, uint32_t reason);
void ofi_conn_disconnect(struct ofi_conn *c);
/* Continues a connection in phase LINGERING or ENDING. May add CLOSED to the batch. */
void ofi_conn_advance(struct ofi_conn *c, uint64_t now_ns, struct ofi_batch *batch);
/* Closes the libfabric objects, without an event. Afterwards only ofi_conn_free() may be called. */
void ofi_conn_close(struct ofi_conn *c);
void ofi_conn_free(struct ofi_conn *c);

#endif
