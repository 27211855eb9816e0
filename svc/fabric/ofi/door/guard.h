/* A guard between libfabric and the sockets of accepted connections (README, O12). */
#ifndef GRADPOOL_FABRIC_OFI_DOOR_GUARD_H
#define GRADPOOL_FABRIC_OFI_DOOR_GUARD_H

#include <stdbool.h>
#include <stdint.h>

/* From now on bytes that come on this socket are checked before libfabric gets them; a message has
 * at most so many bytes. 0, -ENOMEM, or -EMFILE (a descriptor too large to be watched). */
int ofi_guard_begin(int fd, uint64_t message_bytes_max);
struct ofi_door;
/* libfabric's listen() on this descriptor does nothing, its accept() asks the door (O8). The same
 * errors. */
int ofi_guard_listener(int fd, struct ofi_door *door);
/* To be called before the socket is closed: its number may come again. No effect without a guard.
 */
void ofi_guard_end(int fd);

/* -ENOSYS, with a line in the log: libfabric calls another recv() than this program's, so that
 * nothing would be checked. */
int ofi_guard_check(void);

/* Whether hostile peers were tried against this version of libfabric, as fi_version() has it: the
 * guard knows the bytes and the calls of the provider of those versions. */
bool ofi_guard_knows(uint32_t libfabric_version);
#define OFI_VERSIONS_KNOWN "1.17 or 2.1"

#endif
