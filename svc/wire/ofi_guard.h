/* Stands between libfabric and the sockets of accepted connections (README, O12). */
#ifndef GRADPOOL_WIRE_OFI_GUARD_H
#define GRADPOOL_WIRE_OFI_GUARD_H

#include <stdbool.h>
#include <stdint.h>

/* From now on, what comes on this socket is checked before libfabric gets it; messages may have up
 * to so many bytes. 0, -ENOMEM, or -EMFILE (a descriptor too large to be watched). */
int ofi_guard_begin(int fd, uint64_t message_bytes_max);
struct ofi_door;
/* libfabric's listen() on this descriptor does nothing, its accept() asks the door (O8). The same
 * errors. */
int ofi_guard_listener(int fd, struct ofi_door *door);
/* Before the socket is closed: its number may come again. Nothing happens without a guard. */
void ofi_guard_end(int fd);

/* -ENOSYS, and the log says why: this program's recv() is not the one that libfabric calls, so that
 * nothing would be checked. */
int ofi_guard_check(void);

/* Whether hostile peers were tried against this version of libfabric, as fi_version() has it: the
 * guard knows what the provider of those puts on a socket, and which calls it makes. */
bool ofi_guard_knows(uint32_t libfabric_version);
#define OFI_VERSIONS_KNOWN "1.17 or 2.1"

#endif
