/* The memory of one lane, with counters. A lane allocates only from its own arena, in which each
 * job has an account. The number of bytes of each lane and job is therefore always known. The
 * memory is on the lane's NUMA node, and is freed together.
 *
 * Threads: the lane's thread allocates and frees. Any thread may call arena_allocated_bytes(),
 * arena_prepare(), arena_warm() and arena_forget_prepared(). */
#ifndef GRADPOOL_LANE_MEMORY_ARENA_H
#define GRADPOOL_LANE_MEMORY_ARENA_H

#include "svc/base/library.h"
#include "svc/host/cores.h"

#include <stddef.h>

struct arena;

/* Number of bytes of one job, as rounded up by the allocator; initially zero. Only for the lane's
 * thread. */
struct arena_account {
    size_t limit_bytes; /* limit of this account; 0: the limit of arena_set_account_limit() */
    size_t bytes;
};

/* Creates an arena with memory on the NUMA node of the core at `position`. `cores` NULL: the kernel
 * chooses the node. `cores` must outlive the arena. Returns 0, -ENOMEM, or -EAGAIN if there are too
 * many arenas. */
int arena_create(const struct cores *cores, size_t position, struct arena **ret_arena);
/* Frees all memory, including blocks that were not freed. The accounts are invalid afterwards. NULL
 * is allowed. */
void arena_destroy(struct arena *arena);

/* Sets the limit of all accounts together; 0: no limit. An allocation that would exceed the limit
 * fails; existing memory stays. */
void arena_set_limit(struct arena *arena, size_t bytes);
/* Returns the bytes of all accounts together, without a lock. Only for the lane's thread. */
size_t arena_counted_bytes(const struct arena *arena);
size_t arena_limit(const struct arena *arena);
/* Sets the limit of each account without its own limit; 0: no limit. */
void arena_set_account_limit(struct arena *arena, size_t bytes);
size_t arena_account_limit(const struct arena *arena);
/* Returns the error of the last allocation that failed. -EDQUOT: limit of the account. -ENOSPC:
 * limit of all accounts. -ENOMEM: no memory. */
int arena_lack(const struct arena *arena);

/* Counts the bytes of an aligned allocation in advance, so that the allocation cannot exceed a
 * limit later. The caller calls arena_unreserve() directly before the allocation. Returns the
 * counted bytes; 0: a limit would be exceeded. */
size_t arena_reserve(struct arena *arena, struct arena_account *account, size_t bytes);
void arena_unreserve(struct arena *arena, struct arena_account *account, size_t counted_bytes);

/* Returns zeroed memory, or NULL; arena_lack() then has the reason. For 0 bytes, the pointer that
 * is returned can be freed. */
void *arena_alloc(struct arena *arena, struct arena_account *account, size_t bytes);
/* Like arena_alloc(), aligned to a page, for memory that is registered with a fabric. */
void *arena_alloc_aligned(struct arena *arena, struct arena_account *account, size_t bytes);
/* Frees memory of this account. NULL is allowed. */
void arena_free(struct arena *arena, struct arena_account *account, void *memory);

/* Prepares zeroed memory with its pages for the next allocation of exactly `bytes`, so that the
 * lane neither clears the memory nor has page faults. The memory is not counted before that
 * allocation. `bytes` is at least ARENA_PREPARED_LEAST. Returns 0 or -ENOMEM. */
#define ARENA_PREPARED_LEAST ((size_t)64 << 10)
int arena_prepare(struct arena *arena, size_t bytes);
/* Allocates pages for `bytes` in total, for shorter allocations that will follow soon. */
void arena_warm(struct arena *arena, size_t bytes);
/* Frees prepared memory that no allocation has used. */
void arena_forget_prepared(struct arena *arena);

/* Returns the bytes in use, as the allocator counts them; they equal the sum of all accounts. Locks
 * the allocator for tens of microseconds, so it must not be called on the data path. */
size_t arena_allocated_bytes(const struct arena *arena);

/* Writes name and versions of the allocator. A build with sanitizers has no version. */
void arena_library(struct library *ret_row);

#endif
