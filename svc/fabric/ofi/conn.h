/* The life of a connection of fabric_ofi: connected or accepted, open, ended. */
#ifndef GRADPOOL_FABRIC_OFI_CONN_H
#define GRADPOOL_FABRIC_OFI_CONN_H

#include "svc/fabric/ofi/provider/types.h"

int ofi_conn_connect(struct ofi_fabric *f, const char *address, const void *ticket,
                     size_t ticket_bytes, void *owner, struct ofi_conn **ret_conn);
/* Makes a connection of a peer's request; takes `info` over. NULL: malformed or out of memory, and
 * the peer was rejected. */
struct ofi_conn *ofi_conn_request(struct ofi_fabric *f, struct fi_info *info, const void *data,
                                  size_t data_bytes);
int ofi_conn_accept(struct ofi_conn *c, void *owner);
void ofi_conn_refuse(struct ofi_conn *c, int reason);
/* On FI_CONNECTED: true when the connection is open now and OPEN is to be handed out. */
bool ofi_conn_connected(struct ofi_conn *c, const void *data, size_t data_bytes);
/* On FI_SHUTDOWN or an error of the endpoint. */
void ofi_conn_shut(struct ofi_conn *c, int error, uint32_t reason);
void ofi_conn_disconnect(struct ofi_conn *c);
/* Moves a connection on that is LINGERING or ENDING; may put CLOSED into the batch. */
void ofi_conn_advance(struct ofi_conn *c, uint64_t now_ns, struct ofi_batch *batch);
/* Closes libfabric's objects, without an event. Only ofi_conn_free() may follow. */
void ofi_conn_close(struct ofi_conn *c);
void ofi_conn_free(struct ofi_conn *c);

#endif
