/* Memory that two processes share: sealed memfds, created here or received from a peer. */
#ifndef GRADPOOL_FABRIC_SHM_MAP_MEMORY_H
#define GRADPOOL_FABRIC_SHM_MAP_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Creates a zeroed memfd of `bytes`, rounded up to pages, that can neither shrink nor grow. It is
 * mapped for reading and writing with all its pages, so that its maker pays for them (S14). Errors:
 * -ENOMEM, -EMFILE, -ENFILE. */
int shm_memory_create(const char *name, uint64_t bytes, int *ret_fd, void **ret_base);

/* From now on the memory can be mapped for reading only. Existing mappings keep their rights. */
int shm_memory_seal_writes(int fd);

/* Maps a peer's memfd shared. First checks that it is harmless: it must be memory, sealed against
 * shrinking and growing, and `bytes` long, rounded up to pages. Never blocks on the descriptor, and
 * does not own it. Errors: -EBADMSG: seals or size are wrong; -ENOMEM. */
int shm_memory_map_to_read(int fd, uint64_t bytes, void **ret_base);
/* Maps the memfd for reading and writing, and guards the mapping: a page that fails sets `poisoned`
 * (sigbus.h). Further error: -EACCES: it cannot be mapped for writing. */
int shm_memory_map_guarded(int fd, uint64_t bytes, _Atomic bool *poisoned, void **ret_base);

/* Unmaps memory that was created or mapped here. NULL is fine. */
void shm_memory_unmap(void *base, uint64_t bytes);

#endif
