/* Keeps a process alive when a peer's memory fails under it (S8). A sealed memfd cannot be cut
 * short, but its pages can still be missing: punched out while the host has none to give, or
 * broken. A touch of such a page raises SIGBUS. */
#ifndef GRADPOOL_FABRIC_SHM_MAP_SIGBUS_H
#define GRADPOOL_FABRIC_SHM_MAP_SIGBUS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* From now on a page of the mapping that cannot be had is replaced by one of zeros, and `poisoned`
 * is set. Any thread. Installs the process's handler for SIGBUS; faults elsewhere go to the handler
 * of before. Errors: -ENOMEM. */
int shm_sigbus_guard(void *base, uint64_t bytes, _Atomic bool *poisoned);
/* To be called before the mapping goes. No effect on a mapping without guard. */
void shm_sigbus_release(void *base);
/* Reads a byte of each page. One that cannot be had is left out and poisons nothing. */
void shm_sigbus_touch(const void *start, uint64_t bytes);

#endif
