/* Gradients that every worker can compute. A value is a function of (seed, tensor, round, rank,
 * element), so each worker can compare each element of a result with the sum in rank order. */
#ifndef GRADPOOL_BENCH_LIB_GRADIENT_H
#define GRADPOOL_BENCH_LIB_GRADIENT_H

#include <stdbool.h>
#include <stdint.h>

struct gradient {
    uint64_t seed;
    uint64_t tensor, round;
};

/* Returns a value in [-1, 1) with so many bits that sums are rounded, and depend on the order of
 * summation. */
float gradient_value(const struct gradient *g, uint32_t rank, uint64_t element);
void gradient_fill(const struct gradient *g, uint32_t rank, float *values, uint64_t elements);
/* Returns the number of `values` that differ in any bit from ((g0 + g1) + ...), divided by
 * `workers` if `is_mean`. */
uint64_t gradient_count_wrong(const struct gradient *g, uint32_t workers, bool is_mean,
                              const float *values, uint64_t elements);

#endif
