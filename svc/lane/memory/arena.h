/* The memory of one lane, with counters. A lane allocates from its own arena only, and each job has
 * an account in it. So the bytes of lane and job are known at any time, are on the lane's NUMA
 * node, and are freed together.
 *
 * Threads: the lane's thread allocates and frees. Any thread may call arena_allocated_bytes(),
 * arena_prepare(), arena_warm() and arena_forget_prepared(). */
#ifndef GRADPOOL_LANE_MEMORY_ARENA_H
#define GRADPOOL_LANE_MEMORY_ARENA_H

#include "svc/base/library.h"
#include "svc/host/cores.h"

#include <stddef.h>

struct arena;

/* Counter of one job's memory in bytes as the allocator rounds them; zero at first. For the lane's
 * thread. */
struct arena_account {
    size_t limit_bytes; /* limit of this account; 0: the limit of arena_set_account_limit() */
    size_t bytes;
};

/* Creates an arena whose memory is on the NUMA node of the core at `position`. `cores` NULL: the
 * kernel chooses the node. `cores` must exist as long as the arena. Errors: -ENOMEM, -EAGAIN (too
 * many arenas). */
int arena_create(const struct cores *cores, size_t position, struct arena **ret_arena);
/* Frees all memory, including blocks that were not freed. The accounts are invalid afterwards. NULL
 * is fine. */
void arena_destroy(struct arena *arena);

/* Sets the limit of all accounts together. An allocation beyond it fails; existing memory stays. 0:
 * no limit. */
void arena_set_limit(struct arena *arena, size_t bytes);
/* Returns the bytes of all accounts together, without a lock. For the lane's thread. */
size_t arena_counted_bytes(const struct arena *arena);
size_t arena_limit(const struct arena *arena);
/* Sets the limit of each account that has no limit of its own; 0: none. */
void arena_set_account_limit(struct arena *arena, size_t bytes);
size_t arena_account_limit(const struct arena *arena);
/* Returns the reason of the last failed allocation: -EDQUOT: limit of the account; -ENOSPC: limit
 * of all accounts; -ENOMEM: no memory. */
int arena_lack(const struct arena *arena);

/* Counts the bytes of an aligned allocation in advance, so that no limit can make the allocation
 * fail. The caller calls arena_unreserve() right before the allocation. Returns the counted bytes;
 * 0: beyond a limit. */
size_t arena_reserve(struct arena *arena, struct arena_account *account, size_t bytes);
void arena_unreserve(struct arena *arena, struct arena_account *account, size_t counted_bytes);

/* Returns zeroed memory. NULL: no memory, see arena_lack(). For 0 bytes returns a pointer that can
 * be freed. */
void *arena_alloc(struct arena *arena, struct arena_account *account, size_t bytes);
/* Like arena_alloc(), aligned to a page, for memory that is registered with a fabric. */
void *arena_alloc_aligned(struct arena *arena, struct arena_account *account, size_t bytes);
/* Frees memory of this account. NULL is fine. */
void arena_free(struct arena *arena, struct arena_account *account, void *memory);

/* Prepares zeroed memory, with its pages, for the next allocation of exactly `bytes`, so that the
 * lane neither clears it nor has page faults. It is not counted until then. `bytes` is at least
 * ARENA_PREPARED_LEAST. -ENOMEM. */
#define ARENA_PREPARED_LEAST ((size_t)64 << 10)
int arena_prepare(struct arena *arena, size_t bytes);
/* Allocates pages for shorter allocations of `bytes` in total that follow soon. */
void arena_warm(struct arena *arena, size_t bytes);
/* Frees prepared memory that no allocation has used. */
void arena_forget_prepared(struct arena *arena);

/* Returns the bytes in use as the allocator counts them: the sum of all accounts. Takes locks of
 * the allocator for tens of microseconds, so it is for statistics and not for the data path. */
size_t arena_allocated_bytes(const struct arena *arena);

/* Fills in name and versions of the allocator. A build with sanitizers has no version. */
void arena_library(struct library *ret_row);

#endif
