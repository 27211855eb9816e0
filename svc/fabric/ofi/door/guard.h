/* A guard checks the bytes of accepted connections before libfabric reads them (README, O12). */
#ifndef GRADPOOL_FABRIC_OFI_DOOR_GUARD_H
#define GRADPOOL_FABRIC_OFI_DOOR_GUARD_H

#include <stdbool.h>
#include <stdint.h>

/* Begins to check the bytes that arrive on this socket. A message has at most `message_bytes_max`.
 * 0; -ENOMEM; -EMFILE (the number of the descriptor is too large). */
int ofi_guard_begin(int fd, uint64_t message_bytes_max);
struct ofi_door;
/* Makes libfabric's listen() on this descriptor do nothing, and its accept() call the door (O8).
 * Errors of ofi_guard_begin(). */
int ofi_guard_listener(int fd, struct ofi_door *door);
/* Called before the socket is closed, because its number may be reused. Does nothing without a
 * guard. */
void ofi_guard_end(int fd);

/* Returns -ENOSYS, and logs a line, if libfabric calls another recv() than the one of this program.
 * Nothing would be checked then. */
int ofi_guard_check(void);

/* Returns whether this version of libfabric, as fi_version() returns it, was tested with hostile
 * peers. The guard relies on the bytes and calls of the provider in those versions. */
bool ofi_guard_knows(uint32_t libfabric_version);
#define OFI_VERSIONS_KNOWN "1.17 or 2.1"

#endif
