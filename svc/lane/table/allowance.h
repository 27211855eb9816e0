/* Table memory that a lane may give to one job. Two functions of the caller allocate and free; the
 * allowance counts the bytes and refuses more than its limit. All shards of the job's tables on the
 * lane share one allowance.
 *
 * The coordinator raises the limit in steps, so that a new row needs no request to the coordinator
 * (A82). All functions must run on the lane's thread. */
#ifndef GRADPOOL_LANE_TABLE_ALLOWANCE_H
#define GRADPOOL_LANE_TABLE_ALLOWANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Number of bytes by which a lane asks the coordinator to raise the limit. */
#define ALLOWANCE_STEP_BYTES (UINT64_C(64) << 20)

/* Allocates zeroed memory, aligned to 8 bytes; memory of 4 KiB or more is aligned to 4 KiB. Returns
 * 0, or a negative errno if memory is missing; `ret_memory` is then unchanged. */
typedef int (*allowance_alloc_fn)(void *context, size_t bytes, void **ret_memory);
/* Frees memory of `bytes` bytes from allowance_alloc_fn. */
typedef void (*allowance_free_fn)(void *context, void *memory, size_t bytes);

/* The caller owns this struct, and must keep `context` valid until the last allowance_free(). */
struct allowance {
    allowance_alloc_fn alloc;
    allowance_free_fn free;
    void *context;
    uint64_t limit_bytes; /* the caller may set any limit at any time, also one below used_bytes */
    uint64_t used_bytes;
    /* limit that the last allocation would have needed; 0: the limit was high enough */
    uint64_t refused_bytes;
};

/* Allocates zeroed memory of `bytes` bytes. Returns 0, -EDQUOT beyond the limit, or an error of the
 * caller's allocator. After an error nothing is counted. */
int allowance_alloc(struct allowance *allowance, size_t bytes, void **ret_memory);
/* Frees memory of allowance_alloc(). `bytes` is the same as in the allocation. NULL is allowed. */
void allowance_free(struct allowance *allowance, void *memory, size_t bytes);
/* Returns the bytes by which the limit should be raised: one step if three quarters of the limit
 * are used, otherwise 0. */
uint64_t allowance_wanted_bytes(const struct allowance *allowance);

#endif
