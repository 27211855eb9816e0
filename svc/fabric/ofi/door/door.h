/* The listening socket of a fabric over `tcp`. gradpool itself accepts TCP connections and waits,
 * without reading, until the whole connect request has arrived. Only then libfabric accepts the
 * connection (README, O8). */
#ifndef GRADPOOL_FABRIC_OFI_DOOR_DOOR_H
#define GRADPOOL_FABRIC_OFI_DOOR_DOOR_H

#include <stdint.h>
#include <sys/socket.h>

struct ofi_door;

/* Starts to listen. `provider_fd` is the bound socket of a passive endpoint before fi_listen().
 * From then on `provider_fd` refers to another descriptor. This descriptor is readable when a
 * complete request has arrived, and libfabric's accept() on this descriptor returns the caller's
 * socket (guard.h). Returns 0 or a negative errno. */
int ofi_door_open(int provider_fd, struct ofi_door **ret_door);
/* Stops listening. Called before the passive endpoint is closed, which closes `provider_fd`. NULL
 * is allowed. */
void ofi_door_close(struct ofi_door *d);
/* Closes the descriptors in a forked child. NULL is allowed. */
void ofi_door_abandon(struct ofi_door *d);

/* Returns a descriptor that is readable when ofi_door_look() has work. */
int ofi_door_fd(const struct ofi_door *d);
/* Accepts callers and checks their requests, a few at a time, without blocking. */
void ofi_door_look(struct ofi_door *d);

/* Writes the address of the listener. Returns 0 or a negative errno. */
int ofi_door_address(const struct ofi_door *d, struct sockaddr_storage *ret_address);

/* Returns the result for libfabric's accept(): a socket whose request has arrived, or -1 with errno
 * EAGAIN. */
int ofi_door_take(struct ofi_door *d);

#endif
