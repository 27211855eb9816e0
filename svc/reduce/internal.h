/* The kernels, one table for each instruction set, and what the files of this folder share. Tests
 * compare each kernel with plain C bit for bit (R5). */
#ifndef GRADPOOL_REDUCE_INTERNAL_H
#define GRADPOOL_REDUCE_INTERNAL_H

#include "svc/reduce/reduce.h"
#include "svc/reduce/rows/rows.h"
#include "svc/reduce/update.h"

enum reduce_width { REDUCE_SAME, REDUCE_ACCUMULATED, REDUCE_WIDTHS };

struct reduce_kernels {
    /* To targets of the dtype of the source, or of the accumulator. */
    reduce_fn fold[REDUCE_OPERATIONS][REDUCE_DTYPES][REDUCE_WIDTHS];
    update_fn update[UPDATE_RULES][REDUCE_DTYPES][REDUCE_WIDTHS];
    /* By the dtype of the values. */
    row_fn row[ROW_RULES][REDUCE_DTYPES];
    row_initial_fn row_initial[REDUCE_DTYPES];
};

/* The kernels that are used for `set` on this machine; NULL: none. */
const struct reduce_kernels *reduce_kernels_of(enum reduce_set set);
/* The column of targets of dtype `to`, an enum reduce_width; negative: there is none. */
int reduce_width_of(enum reduce_dtype from, enum reduce_dtype to);

/* Coefficients of one step, computed from the settings in double and rounded once. */
struct update_scalars {
    float rate, weight_decay;
    float shrink; /* 1 - rate * weight_decay */
    float momentum;
    float taken; /* weight of the gradient in the moment: 1 - dampening; in the first step 1 */
    float beta1, beta2, taken1, taken2;
    float adam_rate, correction2_root, epsilon;
};
struct update_scalars update_scalars(const struct update_settings *settings, uint64_t step);
/* By repeated squaring: the same bits on every machine, which pow() does not guarantee (R1). */
double update_power(double base, uint64_t exponent);
/* False for NaN. */
bool update_is_within(double value, double least, double below);

extern const struct reduce_kernels reduce_kernels_c;
#ifdef __x86_64__
extern const struct reduce_kernels reduce_kernels_avx2, reduce_kernels_avx512;
#endif

#endif
