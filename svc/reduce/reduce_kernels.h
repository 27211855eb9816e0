/* The kernels, one file for each instruction set; only reduce.c chooses among them, and tests
 * compare each with plain C bit for bit (R5). */
#ifndef GRADPOOL_REDUCE_KERNELS_H
#define GRADPOOL_REDUCE_KERNELS_H

#include "svc/reduce/reduce.h"

void reduce_sum_f32_c(void *const targets[], int targets_count, const void *const sources[],
                      int sources_count, size_t elements, uint32_t divisor);

#endif
