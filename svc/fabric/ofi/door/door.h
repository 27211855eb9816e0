/* The door of a fabric that listens over `tcp`. It accepts TCP connections itself, and waits for
 * the whole connect request without reading it; only then libfabric accepts the connection (README,
 * O8). */
#ifndef GRADPOOL_FABRIC_OFI_DOOR_DOOR_H
#define GRADPOOL_FABRIC_OFI_DOOR_DOOR_H

#include <stdint.h>
#include <sys/socket.h>

struct ofi_door;

/* Opens the door. `provider_fd` is the bound socket of a passive endpoint before fi_listen(). The
 * door listens with this socket. The number `provider_fd` then means a descriptor that is readable
 * when a caller is ready, and libfabric's accept() on it returns that caller (guard.h). Returns a
 * negative errno. */
int ofi_door_open(int provider_fd, struct ofi_door **ret_door);
/* Called before the passive endpoint is closed, which closes `provider_fd`. NULL is fine. */
void ofi_door_close(struct ofi_door *d);
/* For a forked child: closes the descriptors. NULL is fine. */
void ofi_door_abandon(struct ofi_door *d);

/* Returns a descriptor that is readable when ofi_door_look() has work. */
int ofi_door_fd(const struct ofi_door *d);
/* Accepts callers and checks their requests: a few at a time, without waiting. */
void ofi_door_look(struct ofi_door *d);

/* Returns the address of the listener. */
int ofi_door_address(const struct ofi_door *d, struct sockaddr_storage *ret_address);

/* Returns the result for libfabric's accept(): a socket whose request has arrived, or -1 with
 * EAGAIN. */
int ofi_door_take(struct ofi_door *d);

#endif
