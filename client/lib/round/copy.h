/* Copies between the caller's memory and staging. */
#ifndef GRADPOOL_CLIENT_LIB_ROUND_COPY_H
#define GRADPOOL_CLIENT_LIB_ROUND_COPY_H

#include "svc/reduce/reduce.h"

#include <stddef.h>

/* Shorter copies are made without releasing the job's lock. */
#define COPY_LOCKED_BYTES 16384

/* The shortest copy that goes past the cache, in a job with so much staging: its target would leave
 * the cache before it is read, and a store into a cached line moves half as much again. A lane
 * reads shorter copies from the cache, which saves more. */
static inline size_t copy_streams_from(uint64_t staged_bytes)
{
    return staged_bytes > (UINT64_C(12) << 20) ? (size_t)16 << 10 : (size_t)2 << 20;
}

/* As memcpy(), past the cache from `streams_from` bytes. Other processes see the copy before any
 * later store. */
void copy_values(void *target, const void *source, size_t bytes, size_t streams_from);

struct copy_dtypes {
    unsigned values, wire; /* of the caller's memory; of staging */
};
/* `bytes` of the side that is staging. */
void copy_to_wire(void *target, const void *source, size_t bytes, struct copy_dtypes dtypes,
                  size_t streams_from);
void copy_from_wire(void *target, const void *source, size_t bytes, struct copy_dtypes dtypes,
                    size_t streams_from);

#endif
