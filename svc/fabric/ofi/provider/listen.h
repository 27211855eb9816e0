/* The listening end of a fabric_ofi: a passive endpoint of libfabric, and the listening socket that
 * gradpool operates for it (door.h). */
#ifndef GRADPOOL_FABRIC_OFI_PROVIDER_LISTEN_H
#define GRADPOOL_FABRIC_OFI_PROVIDER_LISTEN_H

#include "svc/fabric/ofi/provider/types.h"

struct ofi_listener;

/* Implements fabric_listen(). After an error, a listener that was already opened stays in the
 * fabric and has to be closed. */
int ofi_listen(struct ofi_fabric *f, const char *address, char *ret_address);
void ofi_listener_close(struct ofi_listener *l);
/* Closes the descriptors in a forked child. NULL is allowed. */
void ofi_listener_abandon(struct ofi_listener *l);
/* Accepts callers and checks their connect requests (ofi_door_look()). The listener's descriptor is
 * in the fabric's epoll set with `l` as its data. */
void ofi_listener_look(struct ofi_listener *l);
/* Rejects a request and frees `info`. `reason`: positive errno. */
void ofi_listener_reject(struct ofi_listener *l, struct fi_info *info, uint32_t reason);
/* Returns whether the bytes from this connection's peer have to be checked (O12). */
bool ofi_listener_guards(const struct ofi_conn *c);

#endif
