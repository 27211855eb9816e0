/* Memory of one lane, counted. A lane allocates everything from its arena, each job against an
 * account of its own, so what a lane and a job hold is known at any moment, lies on the lane's NUMA
 * node, and goes back as a whole.
 *
 * Threads: one at a time allocates and frees (the lane's); for any are arena_allocated_bytes(),
 * arena_prepare(), arena_warm() and arena_forget_prepared(). */
#ifndef GRADPOOL_LANE_MEMORY_ARENA_H
#define GRADPOOL_LANE_MEMORY_ARENA_H

#include "svc/base/library.h"
#include "svc/host/cores.h"

#include <stddef.h>

struct arena;

/* Start it at zero; read it at any time. Bytes as the allocator rounds them. */
struct arena_account {
    size_t limit_bytes; /* of its own; 0: as arena_set_account_limit() says */
    size_t bytes;
};

/* Memory is bound to the NUMA node of core `position`; `cores` NULL: left to the kernel. `cores`
 * is lent for the arena's life. Errors: -ENOMEM, -EAGAIN (too many arenas). */
int arena_create(const struct cores *cores, size_t position, struct arena **ret_arena);
/* Gives back all memory, also what was not freed; accounts then say nothing. NULL is fine. */
void arena_destroy(struct arena *arena);

/* From now on all accounts together may hold so much: what goes beyond is no memory. 0: no limit.
 * What is held already stays. */
void arena_set_limit(struct arena *arena, size_t bytes);
/* Of all accounts together, at once: no lock is taken. For the lane's thread. */
size_t arena_counted_bytes(const struct arena *arena);
size_t arena_limit(const struct arena *arena);
/* The same for each account by itself. */
void arena_set_account_limit(struct arena *arena, size_t bytes);
size_t arena_account_limit(const struct arena *arena);
/* Why there was no memory when it was asked for last: -EDQUOT the account, -ENOSPC all of them
 * together hold what they may; -ENOMEM. */
int arena_lack(const struct arena *arena);

/* Counts what an aligned allocation of so many bytes will, so that it cannot fail for a limit
 * later: given back right before that. Returns what was counted, 0 when it is too much. */
size_t arena_reserve(struct arena *arena, struct arena_account *account, size_t bytes);
void arena_unreserve(struct arena *arena, struct arena_account *account, size_t counted_bytes);

/* Zeroed; NULL when there is no memory. 0 bytes give a pointer that can be freed. */
void *arena_alloc(struct arena *arena, struct arena_account *account, size_t bytes);
/* The same, aligned to a page: for slots that are registered. */
void *arena_alloc_aligned(struct arena *arena, struct arena_account *account, size_t bytes);
/* To the account that it came from. NULL is fine. */
void arena_free(struct arena *arena, struct arena_account *account, void *memory);

/* The next allocation of exactly so many bytes gets zeroed memory that has its pages, so that the
 * lane neither clears it nor has faults in it. Not counted until then. At least
 * ARENA_PREPARED_LEAST. -ENOMEM. */
#define ARENA_PREPARED_LEAST ((size_t)64 << 10)
int arena_prepare(struct arena *arena, size_t bytes);
/* Pages for so many bytes of shorter allocations, if they come soon. */
void arena_warm(struct arena *arena, size_t bytes);
/* Gives back what was prepared and nobody has asked for. */
void arena_forget_prepared(struct arena *arena);

/* What the allocator says is in use: the sum of all accounts. Takes the allocator's locks, tens of
 * microseconds: for statistics, not for the data path. */
size_t arena_allocated_bytes(const struct arena *arena);

/* The allocator's versions; a build for sanitizers runs without it. */
void arena_library(struct library *ret_row);

#endif
