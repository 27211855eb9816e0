/* Gradients whose sum is exact in whatever order it is made (18 bits a value), so that systems
 * which sum in different orders are checked alike. One element in PATTERN_PERIOD is a stamp: it
 * tells the round, so that a result left over from an earlier round counts as wrong, and the place,
 * so that a block in the wrong place does. Stamping costs next to nothing, filling does not. */
#ifndef GRADPOOL_BENCH_PATTERN_H
#define GRADPOOL_BENCH_PATTERN_H

#include <stdint.h>

#define PATTERN_PERIOD 16384
/* Sums of so many are exact in float32. */
#define PATTERN_WORKERS_MAX 64

void pattern_fill(float *values, uint64_t elements, uint32_t rank);
void pattern_stamp(float *values, uint64_t elements, uint32_t rank, uint32_t round);
/* How many of `values` are not the sum over all ranks in that round. */
uint64_t pattern_count_wrong(const float *values, uint64_t elements, uint32_t workers,
                             uint32_t round);

#endif
