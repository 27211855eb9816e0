/* Memory with all its pages: no first touch costs a fault later, and the process that populates is
 * the one that pays. */
#ifndef GRADPOOL_BASE_SYSTEM_POPULATE_H
#define GRADPOOL_BASE_SYSTEM_POPULATE_H

#include <stddef.h>

/* Adds missing pages; existing pages stay unchanged, also while other threads write to them.
 * -ENOMEM: the host, or the process's memory cgroup, has no memory left. */
int populate(void *memory, size_t bytes);

/* The same for memory that a thread will use which must not wait, and reads each page: where a
 * hypervisor keeps page tables of its own, the first access to a page that is there costs 17 us. */
int populate_warm(void *memory, size_t bytes);

#endif
