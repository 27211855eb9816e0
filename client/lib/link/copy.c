/* Long copies between the caller's memory and staging memory, which bypass the cache. */
#include "client/lib/link/copy.h"

#include <string.h>

#ifdef __SSE2__
#include <immintrin.h>

#define LINE_BYTES 64
/* Number of parts that are copied in parallel. A processor prefetches along several streams, and
 * therefore waits for memory less often than with one stream (DECISIONS.md). */
#define PARTS 4
#define RUN_BYTES (4 * (size_t)LINE_BYTES)

static void stream_line(char *target, const char *source)
{
    __m128i a = _mm_loadu_si128((const __m128i *)source);
    __m128i b = _mm_loadu_si128((const __m128i *)(source + 16));
    __m128i c = _mm_loadu_si128((const __m128i *)(source + 32));
    __m128i d = _mm_loadu_si128((const __m128i *)(source + 48));
    _mm_stream_si128((__m128i *)target, a);
    _mm_stream_si128((__m128i *)(target + 16), b);
    _mm_stream_si128((__m128i *)(target + 32), c);
    _mm_stream_si128((__m128i *)(target + 48), d);
}

/* Copies PARTS parts of `part_bytes` each: a few bytes of each part, then the next bytes of each
 * part. */
static void stream_parts(char *target, const char *source, size_t part_bytes)
{
    for (size_t run = 0; run < part_bytes; run += RUN_BYTES)
        for (size_t at = run; at < PARTS * part_bytes; at += part_bytes)
            for (size_t line = 0; line < RUN_BYTES; line += LINE_BYTES)
                stream_line(target + at + line, source + at + line);
    _mm_sfence(); /* makes the copy visible before later ordinary stores */
}

void copy_values(void *target, const void *source, size_t bytes, size_t streams_from)
{
    size_t head = -(uintptr_t)target % LINE_BYTES, done = 0;
    if (bytes >= streams_from) {
        size_t part_bytes = (bytes - head) / (PARTS * RUN_BYTES) * RUN_BYTES;
        memcpy(target, source, head);
        stream_parts((char *)target + head, (const char *)source + head, part_bytes);
        done = head + PARTS * part_bytes;
    }
    memcpy((char *)target + done, (const char *)source + done, bytes - done);
}
#else
void copy_values(void *target, const void *source, size_t bytes, size_t streams_from)
{
    (void)streams_from;
    memcpy(target, source, bytes);
}
#endif

void copy_to_wire(void *target, const void *source, size_t bytes, struct copy_dtypes dtypes,
                  size_t streams_from)
{
    if (dtypes.values == dtypes.wire)
        copy_values(target, source, bytes, streams_from);
    else
        reduce_convert(dtypes.values, dtypes.wire, source, target,
                       bytes / reduce_element_bytes(dtypes.wire));
}

void copy_from_wire(void *target, const void *source, size_t bytes, struct copy_dtypes dtypes,
                    size_t streams_from)
{
    if (dtypes.values == dtypes.wire)
        copy_values(target, source, bytes, streams_from);
    else
        reduce_convert(dtypes.wire, dtypes.values, source, target,
                       bytes / reduce_element_bytes(dtypes.wire));
}
