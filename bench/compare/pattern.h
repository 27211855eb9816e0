/* Gradients whose sums are exact in any order (each value has 18 bits), so that the results of all
 * systems can be checked in the same way. One of PATTERN_PERIOD elements is a stamp, which depends
 * on the round and on the position. A result of an earlier round or a block at the wrong position
 * is therefore detected. Writing the stamps takes almost no time, writing a whole gradient takes
 * long. */
#ifndef GRADPOOL_BENCH_PATTERN_H
#define GRADPOOL_BENCH_PATTERN_H

#include <stdint.h>

#define PATTERN_PERIOD 16384
/* Sums of up to this many workers are exact in float32. */
#define PATTERN_WORKERS_MAX 64

void pattern_fill(float *values, uint64_t elements, uint32_t rank);
void pattern_stamp(float *values, uint64_t elements, uint32_t rank, uint32_t round);
/* Returns the number of `values` that differ from the sum over all ranks in that round. */
uint64_t pattern_count_wrong(const float *values, uint64_t elements, uint32_t workers,
                             uint32_t round);

#endif
