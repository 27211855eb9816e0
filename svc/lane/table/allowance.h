/* Table memory that a lane may give to one job: two functions of the caller allocate and free, the
 * allowance counts and refuses. All shards of the job's tables on the lane share one.
 *
 * A coordinator raises the limit in steps, so that births need no question to it (A82). Thread: the
 * lane's. */
#ifndef GRADPOOL_LANE_TABLE_ALLOWANCE_H
#define GRADPOOL_LANE_TABLE_ALLOWANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Unit in which a lane requests more. */
#define ALLOWANCE_STEP_BYTES (UINT64_C(64) << 20)

/* Allocates zeroed memory, aligned to 8 bytes at least and to 4 KiB from 4 KiB on. Negative errno:
 * no memory, and *ret_memory is untouched. */
typedef int (*allowance_alloc_fn)(void *context, size_t bytes, void **ret_memory);
/* Frees memory of `bytes` that allowance_alloc_fn has returned. */
typedef void (*allowance_free_fn)(void *context, void *memory, size_t bytes);

/* Memory is the caller's; `context` is lent until the last allowance_free(). */
struct allowance {
    allowance_alloc_fn alloc;
    allowance_free_fn free;
    void *context;
    uint64_t limit_bytes; /* the caller may change it at any time, also below used_bytes */
    uint64_t used_bytes;
};

/* Allocates zeroed memory of `bytes`. -EDQUOT: beyond the limit; other codes are the allocator's.
 * An error changes nothing. */
int allowance_alloc(struct allowance *allowance, size_t bytes, void **ret_memory);
/* `bytes` as allocated. NULL is fine. */
void allowance_free(struct allowance *allowance, void *memory, size_t bytes);
/* Bytes that the lane requests beyond the limit: one step once three quarters are used, else 0. */
uint64_t allowance_wanted_bytes(const struct allowance *allowance);

#endif
