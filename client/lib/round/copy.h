/* Copies between the caller's memory and staging. */
#ifndef GRADPOOL_CLIENT_LIB_ROUND_COPY_H
#define GRADPOOL_CLIENT_LIB_ROUND_COPY_H

#include "svc/reduce/reduce.h"

#include <stddef.h>

/* Shorter copies are not worth letting a job's lock go. */
#define COPY_LOCKED_BYTES 16384

/* How long a copy must be to go past the cache, where so much of the job is staged: nobody reads
 * its target soon enough to find it there, and a store that fills a line it first reads moves half
 * as much again. Shorter ones are found there by the lane, which wins more. */
static inline size_t copy_streams_from(uint64_t staged_bytes)
{
    return staged_bytes > (UINT64_C(12) << 20) ? (size_t)16 << 10 : (size_t)2 << 20;
}

/* As memcpy(), past the cache from `streams_from` bytes. What was stored is seen by other processes
 * before any later store. */
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
