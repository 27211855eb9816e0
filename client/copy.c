/* Long copies. Owns nothing. */
#include "client/copy.h"

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <immintrin.h>

/* Shorter ones are found in the cache by the lane, which wins more. */
#define STREAM_BYTES_MIN ((size_t)2 << 20)
#define LINE_BYTES 64

static void stream_lines(char *target, const char *source, size_t lines)
{
    for (size_t i = 0; i < lines; i++, target += LINE_BYTES, source += LINE_BYTES) {
        __m128i a = _mm_loadu_si128((const __m128i *)source);
        __m128i b = _mm_loadu_si128((const __m128i *)(source + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(source + 32));
        __m128i d = _mm_loadu_si128((const __m128i *)(source + 48));
        _mm_stream_si128((__m128i *)target, a);
        _mm_stream_si128((__m128i *)(target + 16), b);
        _mm_stream_si128((__m128i *)(target + 32), c);
        _mm_stream_si128((__m128i *)(target + 48), d);
    }
    _mm_sfence(); /* ordinary stores that announce these must not overtake them */
}

void copy_values(void *target, const void *source, size_t bytes)
{
    size_t head = -(uintptr_t)target % LINE_BYTES, done = 0;
    if (bytes >= STREAM_BYTES_MIN) {
        size_t lines = (bytes - head) / LINE_BYTES;
        memcpy(target, source, head);
        stream_lines((char *)target + head, (const char *)source + head, lines);
        done = head + lines * LINE_BYTES;
    }
    memcpy((char *)target + done, (const char *)source + done, bytes - done);
}
#else
void copy_values(void *target, const void *source, size_t bytes) { memcpy(target, source, bytes); }
#endif
