/* The kernels, one table for each instruction set; only reduce.c chooses among them, and tests
 * compare each with plain C bit for bit (R5). */
#ifndef GRADPOOL_REDUCE_KERNELS_H
#define GRADPOOL_REDUCE_KERNELS_H

#include "svc/reduce/reduce.h"

enum reduce_width { REDUCE_SAME, REDUCE_ACCUMULATED, REDUCE_WIDTHS };

struct reduce_kernels {
    /* To targets of the source's dtype, or of the accumulator's. */
    reduce_fn fold[REDUCE_OPERATIONS][REDUCE_DTYPES][REDUCE_WIDTHS];
};

extern const struct reduce_kernels reduce_kernels_c;
#ifdef __x86_64__
extern const struct reduce_kernels reduce_kernels_avx2, reduce_kernels_avx512;
#endif

#endif
