/* Computes exact gradients from a hash. bench/peers/gloo_worker.py computes the same values. */
#include "bench/compare/pattern.h"

static float value(uint32_t place, uint32_t rank, uint32_t round)
{
    uint32_t x = place * 2654435761u + rank * 2246822519u + round * 668265263u + 374761393u;
    x ^= x >> 15;
    x *= 3266489917u;
    x ^= x >> 13;
    return (float)(x >> 14) * 0x1p-17f - 1.0f;
}

static float sum(uint32_t place, uint32_t workers, uint32_t round)
{
    float total = 0;
    for (uint32_t rank = 0; rank < workers; rank++)
        total += value(place, rank, round);
    return total;
}

void pattern_fill(float *values, uint64_t elements, uint32_t rank)
{
    for (uint64_t i = 0; i < elements; i++)
        values[i] = value((uint32_t)(i % PATTERN_PERIOD), rank, 0);
}

void pattern_stamp(float *values, uint64_t elements, uint32_t rank, uint32_t round)
{
    for (uint64_t i = 0; i < elements; i += PATTERN_PERIOD)
        values[i] = value((uint32_t)(i / PATTERN_PERIOD), rank, round);
}

uint64_t pattern_count_wrong(const float *values, uint64_t elements, uint32_t workers,
                             uint32_t round)
{
    uint64_t wrong = 0;
    float sums[PATTERN_PERIOD];
    uint64_t period = elements < PATTERN_PERIOD ? elements : PATTERN_PERIOD;
    for (uint32_t i = 0; i < period; i++)
        sums[i] = sum(i, workers, 0);
    for (uint64_t i = 0; i < elements; i++) {
        uint64_t place = i % PATTERN_PERIOD;
        float right = place ? sums[place] : sum((uint32_t)(i / PATTERN_PERIOD), workers, round);
        wrong += !(values[i] == right);
    }
    return wrong;
}
