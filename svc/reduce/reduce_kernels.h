/* The kernels, one table for each instruction set; only reduce.c chooses among them, and tests
 * compare each with plain C bit for bit (R5). */
#ifndef GRADPOOL_REDUCE_KERNELS_H
#define GRADPOOL_REDUCE_KERNELS_H

#include "svc/reduce/reduce.h"
#include "svc/reduce/update.h"

enum reduce_width { REDUCE_SAME, REDUCE_ACCUMULATED, REDUCE_WIDTHS };

struct reduce_kernels {
    /* To targets of the source's dtype, or of the accumulator's. */
    reduce_fn fold[REDUCE_OPERATIONS][REDUCE_DTYPES][REDUCE_WIDTHS];
    update_fn update[UPDATE_RULES][REDUCE_DTYPES][REDUCE_WIDTHS];
};

/* What the settings come to in a step, computed in double and rounded once. */
struct update_scalars {
    float rate, weight_decay, shrink; /* 1 - rate * weight_decay */
    float momentum, taken;            /* 1 - dampening; all of it in the first step */
    float beta1, beta2, taken1, taken2;
    float adam_rate, correction2_root, epsilon;
};
struct update_scalars update_scalars(const struct update_settings *settings, uint64_t step);

extern const struct reduce_kernels reduce_kernels_c;
#ifdef __x86_64__
extern const struct reduce_kernels reduce_kernels_avx2, reduce_kernels_avx512;
#endif

#endif
