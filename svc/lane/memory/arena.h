/* Memory of one lane, counted. A lane allocates from its arena only, each job against an account of
 * its own: the bytes of lane and job are known at any moment, lie on the lane's NUMA node, and are
 * freed as a whole.
 *
 * Threads: the lane's thread allocates and frees; any thread may call arena_allocated_bytes(),
 * arena_prepare(), arena_warm() and arena_forget_prepared(). */
#ifndef GRADPOOL_LANE_MEMORY_ARENA_H
#define GRADPOOL_LANE_MEMORY_ARENA_H

#include "svc/base/library.h"
#include "svc/host/cores.h"

#include <stddef.h>

struct arena;

/* Counter of one job's memory, zero at first, for the lane's thread. Bytes as the allocator rounds
 * them. */
struct arena_account {
    size_t limit_bytes; /* limit of this account; 0: that of arena_set_account_limit() */
    size_t bytes;
};

/* Creates an arena whose memory is bound to the NUMA node of core `position`; `cores` NULL: the
 * kernel places it. `cores` is lent for the arena's life. Errors: -ENOMEM, -EAGAIN (too many
 * arenas). */
int arena_create(const struct cores *cores, size_t position, struct arena **ret_arena);
/* Frees all memory, also blocks that were not freed; accounts are meaningless then. NULL is
 * fine. */
void arena_destroy(struct arena *arena);

/* Limit of all accounts together; an allocation beyond it fails. 0: no limit. Existing memory
 * stays. */
void arena_set_limit(struct arena *arena, size_t bytes);
/* Bytes of all accounts together, without a lock. For the lane's thread. */
size_t arena_counted_bytes(const struct arena *arena);
size_t arena_limit(const struct arena *arena);
/* Limit of each account that has no limit of its own; 0: none. */
void arena_set_account_limit(struct arena *arena, size_t bytes);
size_t arena_account_limit(const struct arena *arena);
/* Reason of the last failed allocation: -EDQUOT: the account's limit; -ENOSPC: the limit of all
 * accounts; -ENOMEM: no memory. */
int arena_lack(const struct arena *arena);

/* Counts the bytes of an aligned allocation in advance, so that the allocation cannot fail for a
 * limit: the caller calls arena_unreserve() right before it. Returns the bytes counted; 0: beyond a
 * limit. */
size_t arena_reserve(struct arena *arena, struct arena_account *account, size_t bytes);
void arena_unreserve(struct arena *arena, struct arena_account *account, size_t counted_bytes);

/* Returns zeroed memory; NULL: no memory, see arena_lack(). 0 bytes give a pointer that can be
 * freed. */
void *arena_alloc(struct arena *arena, struct arena_account *account, size_t bytes);
/* The same, aligned to a page: for memory that is registered with a fabric. */
void *arena_alloc_aligned(struct arena *arena, struct arena_account *account, size_t bytes);
/* Frees memory of this account. NULL is fine. */
void arena_free(struct arena *arena, struct arena_account *account, void *memory);

/* The next allocation of exactly `bytes` gets zeroed memory with its pages, so that the lane
 * neither clears it nor has page faults. Not counted until then. `bytes` is at least
 * ARENA_PREPARED_LEAST. -ENOMEM. */
#define ARENA_PREPARED_LEAST ((size_t)64 << 10)
int arena_prepare(struct arena *arena, size_t bytes);
/* Makes pages for `bytes` of shorter allocations that follow soon. */
void arena_warm(struct arena *arena, size_t bytes);
/* Frees prepared memory that no allocation has used. */
void arena_forget_prepared(struct arena *arena);

/* Bytes in use as the allocator counts them: the sum of all accounts. Takes the allocator's locks,
 * tens of microseconds: for statistics, not for the data path. */
size_t arena_allocated_bytes(const struct arena *arena);

/* Fills in the allocator's name and versions; a build for sanitizers has no version. */
void arena_library(struct library *ret_row);

#endif
