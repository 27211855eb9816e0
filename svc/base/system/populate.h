/* Adds all pages of memory in advance. No later access has to fault pages in, and the memory counts
 * for the process that populates it. */
#ifndef GRADPOOL_BASE_SYSTEM_POPULATE_H
#define GRADPOOL_BASE_SYSTEM_POPULATE_H

#include <stddef.h>

/* Adds the missing pages. Existing pages stay unchanged, even while other threads write to them.
 * -ENOMEM: the host, or the process's memory cgroup, has no memory left. */
int populate(void *memory, size_t bytes);

/* Like populate(), and reads each page. For memory of threads that must not wait: where a
 * hypervisor has page tables of its own, the first access to a present page takes 17 us. */
int populate_warm(void *memory, size_t bytes);

#endif
