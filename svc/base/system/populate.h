/* Allocates all pages of memory in advance. Later accesses have no page faults, and the calling
 * process is charged for the memory. */
#ifndef GRADPOOL_BASE_SYSTEM_POPULATE_H
#define GRADPOOL_BASE_SYSTEM_POPULATE_H

#include <stddef.h>

/* Allocates the missing pages. Existing pages do not change, even while other threads write to
 * them. Returns 0, or -ENOMEM if the host or the process's memory cgroup has no memory left. */
int populate(void *memory, size_t bytes);

/* Like populate(), but also reads each page. Used for threads that must not wait: on a host whose
 * hypervisor has page tables of its own, the first access to an existing page takes 17 us. */
int populate_warm(void *memory, size_t bytes);

#endif
