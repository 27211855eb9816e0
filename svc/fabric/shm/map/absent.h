/* Pages that a mapping of shared memory lacks. The first touch makes the kernel allocate such a
 * page at the expense of the toucher's memory cgroup: a lane must not pay for memory that a worker
 * lends. */
#ifndef GRADPOOL_FABRIC_SHM_MAP_ABSENT_H
#define GRADPOOL_FABRIC_SHM_MAP_ABSENT_H

#include <stdbool.h>
#include <stdint.h>

/* From now on a touch of an absent page there raises SIGBUS, and adds no page. false: this host
 * lacks the means (a seccomp profile without userfaultfd, a kernel before 5.14), and the caller has
 * to use shm_absent_look(). Any thread. */
bool shm_absent_fail(void *base, uint64_t bytes);
/* Whether this host has the means of shm_absent_fail(). */
bool shm_absent_can_fail(void);

/* Maps pages of the range into this process, from the first on. Adds none to the memory; `fails`:
 * the result of shm_absent_fail(). `fd`: the memory, for pages that are swapped out; -1: unknown.
 * Returns the number of mapped bytes, up to the first absent page. */
uint64_t shm_absent_fill(void *base, uint64_t bytes, bool fails, int fd, uint64_t offset);

/* Bytes of the range up to the first absent page, without mapping. Makes no call that the memory's
 * owner could block. */
uint64_t shm_absent_look(const void *base, uint64_t bytes, int fd, uint64_t offset);

#endif
