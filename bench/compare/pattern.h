/* Gradients whose sums are exact in any order (18 bits a value), so that all systems can have the
 * same check. One element in PATTERN_PERIOD is a stamp of round and place. So a result of an
 * earlier round or a block in the wrong place is detected. Stamps take almost no time; filling the
 * whole gradient takes long. */
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
