/* Memory that two processes share: sealed memfds that are created here or received from a peer. */
#ifndef GRADPOOL_FABRIC_SHM_MAP_MEMORY_H
#define GRADPOOL_FABRIC_SHM_MAP_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Creates a zeroed memfd of `bytes`, rounded up to pages, that can neither shrink nor grow. All its
 * pages are allocated and mapped for reading and writing, so that this process is charged for them
 * (S14). Returns 0, -ENOMEM, -EMFILE or -ENFILE. */
int shm_memory_create(const char *name, uint64_t bytes, int *ret_fd, void **ret_base);

/* Seals the memory, so that later mappings are read-only. Existing mappings keep their rights. */
int shm_memory_seal_writes(int fd);

/* Maps a peer's memfd read-only and shared. The descriptor must be memory, sealed against shrinking
 * and growing, and `bytes` long, rounded up to pages. Never blocks, and does not own the
 * descriptor. Returns 0, -EBADMSG if seals or size are wrong, or -ENOMEM. */
int shm_memory_map_to_read(int fd, uint64_t bytes, void **ret_base);
/* Maps the memfd for reading and writing. A page that fails sets `poisoned` (sigbus.h). Returns as
 * shm_memory_map_to_read(), or -EACCES if writing is not allowed. */
int shm_memory_map_guarded(int fd, uint64_t bytes, _Atomic bool *poisoned, void **ret_base);

/* Unmaps memory that was created or mapped here. NULL is allowed. */
void shm_memory_unmap(void *base, uint64_t bytes);

#endif
