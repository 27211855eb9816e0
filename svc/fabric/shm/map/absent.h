/* Missing pages in a mapping of shared memory. The first process that accesses such a page makes
 * the kernel allocate the page, and the kernel charges the memory cgroup of this process. A lane
 * must not be charged for memory that a worker lends. */
#ifndef GRADPOOL_FABRIC_SHM_MAP_ABSENT_H
#define GRADPOOL_FABRIC_SHM_MAP_ABSENT_H

#include <stdbool.h>
#include <stdint.h>

/* Makes each later access to a missing page of the range raise SIGBUS and allocate nothing. Returns
 * false if this host does not support this (a seccomp profile without userfaultfd, or a kernel
 * before 5.14); the caller then has to use shm_absent_look(). Any thread may call this function. */
bool shm_absent_fail(void *base, uint64_t bytes);
/* Returns whether this host supports shm_absent_fail(). */
bool shm_absent_can_fail(void);

/* Maps the pages of the range into this process, beginning with the first page, up to the first
 * missing page. No page is allocated. `fails`: result of shm_absent_fail(). `fd`: descriptor of the
 * memory, used for swapped-out pages; -1: unknown. Returns the number of mapped bytes before the
 * first missing page. */
uint64_t shm_absent_fill(void *base, uint64_t bytes, bool fails, int fd, uint64_t offset);

/* Returns the number of bytes before the first missing page, without mapping any. Makes no
 * call that the owner of the memory could block. */
uint64_t shm_absent_look(const void *base, uint64_t bytes, int fd, uint64_t offset);

#endif
