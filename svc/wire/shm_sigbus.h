/* Keeps a process alive when memory that somebody else made fails under it (S8). A sealed memfd
 * cannot be cut short, but its pages can still be missing: punched out while the host has none to
 * give, or broken. Touching one then raises SIGBUS. */
#ifndef GRADPOOL_WIRE_SHM_SIGBUS_H
#define GRADPOOL_WIRE_SHM_SIGBUS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* From now on a page of the mapping that cannot be had is replaced by one of zeros, and `poisoned`
 * set. Any thread. Makes sure that the process's handler for SIGBUS is ours; faults elsewhere go
 * to the one that was there before. Errors: -ENOMEM. */
int shm_sigbus_guard(void *base, uint64_t bytes, _Atomic bool *poisoned);
/* Before the mapping goes. Does nothing for one that is not guarded. */
void shm_sigbus_release(void *base);

#endif
