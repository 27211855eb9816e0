/* Guard: checks the bytes of accepted connections before libfabric reads them (README, O12). */
#ifndef GRADPOOL_FABRIC_OFI_DOOR_GUARD_H
#define GRADPOOL_FABRIC_OFI_DOOR_GUARD_H

#include <stdbool.h>
#include <stdint.h>

/* Begins to check the bytes that arrive on this socket. `message_bytes_max`: longest message.
 * Returns 0, -ENOMEM, or -EMFILE if the number of the descriptor is too large. */
int ofi_guard_begin(int fd, uint64_t message_bytes_max);
struct ofi_door;
/* Makes libfabric's listen() on this descriptor do nothing, and its accept() call ofi_door_take()
 * (O8). Returns as ofi_guard_begin(). */
int ofi_guard_listener(int fd, struct ofi_door *door);
/* Ends the check. Called before the socket is closed, because the kernel may reuse its number. Has
 * no effect without a guard. */
void ofi_guard_end(int fd);

/* Returns 0, or -ENOSYS if libfabric does not call this program's recv(), so no byte would be
 * checked. Logs this error. */
int ofi_guard_check(void);

/* Returns whether this version of libfabric (from fi_version()) was tested with hostile peers. The
 * guard depends on the provider's bytes and calls in these versions. */
bool ofi_guard_knows(uint32_t libfabric_version);
#define OFI_VERSIONS_KNOWN "1.17 or 2.1"

#endif
