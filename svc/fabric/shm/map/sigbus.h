/* Protects the process from missing pages of a peer's memory (S8). A sealed memfd cannot be
 * truncated, but its pages can be missing: the peer has removed them and the host has no memory
 * left, or a page is damaged. Accessing such a page raises SIGBUS. */
#ifndef GRADPOOL_FABRIC_SHM_MAP_SIGBUS_H
#define GRADPOOL_FABRIC_SHM_MAP_SIGBUS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Protects a mapping. When a missing page of the mapping is accessed, the page is replaced by a
 * page of zeros, and `poisoned` is set. Any thread may call this function. Installs the process's
 * handler of SIGBUS; faults outside protected mappings are passed to the former handler. Returns 0
 * or -ENOMEM. */
int shm_sigbus_guard(void *base, uint64_t bytes, _Atomic bool *poisoned);
/* Called before the mapping is removed. Does nothing for an unprotected mapping. */
void shm_sigbus_release(void *base);
/* Reads one byte of each page. A missing page is skipped and does not set `poisoned`. */
void shm_sigbus_touch(const void *start, uint64_t bytes);

#endif
