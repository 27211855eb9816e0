/* Gradients from a hash. Owns nothing. */
#include "bench/gradient.h"

#include <string.h>

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

static float value(uint64_t stream_key, uint64_t element)
{
    return (float)(mix(stream_key + element) >> 40) * 0x1p-23f - 1.0f;
}

float gradient_value(const struct gradient *g, uint32_t rank, uint64_t element)
{
    return value(stream(g, rank), element);
}

void gradient_fill(const struct gradient *g, uint32_t rank, float *values, uint64_t elements)
{
    uint64_t key = stream(g, rank);
    for (uint64_t i = 0; i < elements; i++)
        values[i] = value(key, i);
}

uint64_t gradient_count_wrong(const struct gradient *g, uint32_t workers, bool is_mean,
                              const float *values, uint64_t elements)
{
    uint64_t wrong = 0, keys[768];
    for (uint32_t rank = 0; rank < workers; rank++)
        keys[rank] = stream(g, rank);
    for (uint64_t i = 0; i < elements; i++) {
        float sum = value(keys[0], i);
        for (uint32_t rank = 1; rank < workers; rank++)
            sum += value(keys[rank], i);
        if (is_mean)
            sum /= (float)workers;
        wrong += memcmp(&sum, &values[i], sizeof sum) != 0;
    }
    return wrong;
}
