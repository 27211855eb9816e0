/* Pages that a mapping of shared memory lacks. A touch of such a page makes the kernel allocate it
 * at the expense of the toucher's memory cgroup: a lane must not pay for what a worker lends. */
#ifndef GRADPOOL_WIRE_SHM_ABSENT_H
#define GRADPOOL_WIRE_SHM_ABSENT_H

#include <stdbool.h>
#include <stdint.h>

/* From now on a touch of an absent page there raises SIGBUS, and adds no page. false: this host
 * cannot (a seccomp profile without userfaultfd, a kernel before 5.14); pages are looked for with
 * shm_absent_fill() then. Any thread. */
bool shm_absent_fail(void *base, uint64_t bytes);
/* Whether this host can. */
bool shm_absent_can_fail(void);

/* Maps those pages into this process, from the first on. Adds none to the memory; `fails`: what
 * shm_absent_fail() said of it. `fd`: the memory, for pages that are swapped out; -1: unknown.
 * Returns how many bytes are mapped, up to the first absent page. */
uint64_t shm_absent_fill(void *base, uint64_t bytes, bool fails, int fd, uint64_t offset);

/* Of the same range, without mapping: bytes up to the first absent page. Makes no call that the
 * memory's owner could block. */
uint64_t shm_absent_look(const void *base, uint64_t bytes, int fd, uint64_t offset);

#endif
