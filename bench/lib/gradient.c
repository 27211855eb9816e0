/* Computes gradients from a hash. */
#include "bench/lib/gradient.h"

#include <string.h>

#define BLOCK 512 /* number of elements that are summed at a time */
/* Functions with target_clones are not used with sanitizers: the loader calls their resolvers
 * before a sanitizer's runtime is initialised, and clang instruments the resolvers. */
#if defined __x86_64__ && !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ && \
    !defined __clang__
#define WITH_AVX2 __attribute__((target_clones("avx2", "default")))
#else
#define WITH_AVX2
#endif

/* ThreadSanitizer would spend most of a test's time in loops over elements. The loops are exempt
 * from its checks. The written range is reported to ThreadSanitizer as a whole, because a checked
 * memcpy() reads this range later. */
#ifdef __SANITIZE_THREAD__
void __tsan_write_range(void *memory, size_t bytes);
#else
#define __tsan_write_range(memory, bytes)
#endif
#define UNWATCHED __attribute__((no_sanitize("thread")))

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= UINT64_C(0x9e3779b97f4a7c15);
    x ^= x >> 29;
    x *= UINT64_C(0xd6e8feb86659fd93);
    return x ^ (x >> 32);
}

static uint64_t stream(const struct gradient *g, uint32_t rank)
{
    return mix(mix(mix(g->seed + 1) + g->tensor) + g->round * 65537 + rank);
}

/* Uses only 32-bit arithmetic, for which compilers generate vector instructions. */
UNWATCHED static uint32_t mix_element(uint32_t x)
{
    x ^= x >> 16;
    x *= UINT32_C(0x7feb352d);
    x ^= x >> 15;
    x *= UINT32_C(0x846ca68b);
    return x ^ (x >> 16);
}

UNWATCHED static inline float value(uint64_t stream_key, uint64_t element)
{
    uint32_t bits = mix_element((uint32_t)element + (uint32_t)stream_key);
    bits ^= (uint32_t)(stream_key >> 32);
    return (float)(int32_t)(bits >> 8) * 0x1p-23f - 1.0f;
}

float gradient_value(const struct gradient *g, uint32_t rank, uint64_t element)
{
    return value(stream(g, rank), element);
}

WITH_AVX2 UNWATCHED void gradient_fill(const struct gradient *g, uint32_t rank, float *values,
                                       uint64_t elements)
{
    uint64_t key = stream(g, rank);
    __tsan_write_range(values, elements * sizeof *values);
    for (uint64_t i = 0; i < elements; i++)
        values[i] = value(key, i);
}

/* For each element from `first` on, computes the sum over all ranks in rank order. */
WITH_AVX2 UNWATCHED static void sum_block(const uint64_t *keys, uint32_t workers, bool is_mean,
                                          uint64_t first, float *sums, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        sums[i] = value(keys[0], first + i);
    for (uint32_t rank = 1; rank < workers; rank++)
        for (uint32_t i = 0; i < count; i++)
            sums[i] += value(keys[rank], first + i);
    for (uint32_t i = 0; is_mean && i < count; i++)
        sums[i] /= (float)workers;
}

WITH_AVX2 UNWATCHED static uint64_t count_different(const float *a, const float *b, uint32_t count)
{
    uint32_t bits_a[BLOCK], bits_b[BLOCK], different = 0;
    memcpy(bits_a, a, count * sizeof *a);
    memcpy(bits_b, b, count * sizeof *b);
    for (uint32_t i = 0; i < count; i++)
        different += bits_a[i] != bits_b[i];
    return different;
}

uint64_t gradient_count_wrong(const struct gradient *g, uint32_t workers, bool is_mean,
                              const float *values, uint64_t elements)
{
    uint64_t wrong = 0, keys[768];
    float sums[BLOCK];
    for (uint32_t rank = 0; rank < workers; rank++)
        keys[rank] = stream(g, rank);
    for (uint64_t i = 0; i < elements; i += BLOCK) {
        uint32_t count = elements - i < BLOCK ? (uint32_t)(elements - i) : BLOCK;
        sum_block(keys, workers, is_mean, i, sums, count);
        wrong += count_different(sums, &values[i], count);
    }
    return wrong;
}
