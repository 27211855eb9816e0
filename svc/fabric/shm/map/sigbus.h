/* Keeps the process alive when a page of a peer's memory is missing (S8). A sealed memfd cannot
 * become shorter, but its pages can still be missing: the peer has removed them and the host has no
 * memory left, or the page is broken. A touch of such a page raises SIGBUS. */
#ifndef GRADPOOL_FABRIC_SHM_MAP_SIGBUS_H
#define GRADPOOL_FABRIC_SHM_MAP_SIGBUS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* From now on a page of the mapping that is not available is replaced by one of zeros, and
 * `poisoned` is set. Any thread may call it. Installs the process's handler for SIGBUS; faults
 * elsewhere go to the former handler. Errors: -ENOMEM. */
int shm_sigbus_guard(void *base, uint64_t bytes, _Atomic bool *poisoned);
/* Called before the mapping is removed. Does nothing for a mapping without a guard. */
void shm_sigbus_release(void *base);
/* Reads a byte of each page. A page that is not available is skipped, and poisons nothing. */
void shm_sigbus_touch(const void *start, uint64_t bytes);

#endif
