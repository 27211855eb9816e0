/* Copies between the memory of the caller and staging memory. */
#ifndef GRADPOOL_CLIENT_LIB_LINK_COPY_H
#define GRADPOOL_CLIENT_LIB_LINK_COPY_H

#include "svc/reduce/reduce.h"

#include <stddef.h>

/* Copies of at most this length are made without releasing the job's lock. */
#define COPY_LOCKED_BYTES 16384

/* Returns the minimum length of copies that bypass the cache, for a job with this much staging
 * memory. A store through the cache first reads the line from memory. For a long copy this read is
 * wasted, because the copy leaves the cache before the lane reads the bytes. A shorter copy stays
 * in the cache until the lane reads the bytes, which saves more. */
static inline size_t copy_streams_from(uint64_t staged_bytes)
{
    return staged_bytes > (UINT64_C(12) << 20) ? (size_t)16 << 10 : (size_t)2 << 20;
}

/* Like memcpy(), but bypasses the cache from `streams_from` bytes on. Other processes see the copy
 * before any later store. */
void copy_values(void *target, const void *source, size_t bytes, size_t streams_from);

struct copy_dtypes {
    unsigned values, wire; /* dtype in the memory of the caller, and in staging memory */
};
/* Both functions copy, and convert between the dtypes. `bytes`: length on the side of staging
 * memory. */
void copy_to_wire(void *target, const void *source, size_t bytes, struct copy_dtypes dtypes,
                  size_t streams_from);
void copy_from_wire(void *target, const void *source, size_t bytes, struct copy_dtypes dtypes,
                    size_t streams_from);

#endif
