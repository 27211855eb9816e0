/* The door of a fabric that listens over `tcp`: takes TCP connections itself, waits for the whole
 * connect request without reading it, and only then lets libfabric accept them (README, O8). */
#ifndef GRADPOOL_FABRIC_OFI_DOOR_DOOR_H
#define GRADPOOL_FABRIC_OFI_DOOR_DOOR_H

#include <stdint.h>
#include <sys/socket.h>

struct ofi_door;

/* `provider_fd` is the bound socket of a passive endpoint before fi_listen(). The door listens in
 * its place; the number becomes a descriptor that is readable when a caller is ready, and
 * libfabric's accept() on it takes that one (guard.h). Negative errno. */
int ofi_door_open(int provider_fd, struct ofi_door **ret_door);
/* To be called before the passive endpoint is closed, which closes `provider_fd`. NULL is fine. */
void ofi_door_close(struct ofi_door *d);
/* In a forked child: closes the descriptors. NULL is fine. */
void ofi_door_abandon(struct ofi_door *d);

/* Readable when ofi_door_look() has work. */
int ofi_door_fd(const struct ofi_door *d);
/* Takes callers and reads requests: a few at a time, never waiting. */
void ofi_door_look(struct ofi_door *d);

/* The address of the listener. */
int ofi_door_address(const struct ofi_door *d, struct sockaddr_storage *ret_address);

/* The result of libfabric's accept(): a socket whose request is there, or -1 and EAGAIN. */
int ofi_door_take(struct ofi_door *d);

#endif
