/* The kernels, with one table for each instruction set. reduce.c chooses a table. Tests compare
 * each kernel with plain C, bit for bit (R5). */
#ifndef GRADPOOL_REDUCE_KERNELS_H
#define GRADPOOL_REDUCE_KERNELS_H

#include "svc/reduce/reduce.h"
#include "svc/reduce/update.h"

enum reduce_width { REDUCE_SAME, REDUCE_ACCUMULATED, REDUCE_WIDTHS };

struct reduce_kernels {
    /* To targets of the dtype of the source, or of the accumulator. */
    reduce_fn fold[REDUCE_OPERATIONS][REDUCE_DTYPES][REDUCE_WIDTHS];
    update_fn update[UPDATE_RULES][REDUCE_DTYPES][REDUCE_WIDTHS];
};

/* Coefficients of one step. They are computed from the settings in double precision, and rounded
 * once. */
struct update_scalars {
    float rate, weight_decay;
    float shrink; /* 1 - rate * weight_decay */
    float momentum;
    float taken; /* weight of the gradient in the moment: 1 - dampening; in the first step 1 */
    float beta1, beta2, taken1, taken2;
    float adam_rate, correction2_root, epsilon;
};
struct update_scalars update_scalars(const struct update_settings *settings, uint64_t step);

extern const struct reduce_kernels reduce_kernels_c;
#ifdef __x86_64__
extern const struct reduce_kernels reduce_kernels_avx2, reduce_kernels_avx512;
#endif

#endif
