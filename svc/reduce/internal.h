/* The kernels, in one table for each instruction set, and common functions of this folder. Tests
 * compare each kernel bit for bit with plain C (R5). */
#ifndef GRADPOOL_REDUCE_INTERNAL_H
#define GRADPOOL_REDUCE_INTERNAL_H

#include "svc/reduce/reduce.h"
#include "svc/reduce/rows/rows.h"
#include "svc/reduce/update.h"

enum reduce_width { REDUCE_SAME, REDUCE_ACCUMULATED, REDUCE_WIDTHS };

struct reduce_kernels {
    /* kernels by operation, dtype of the sources, and width of the targets (reduce_width_of()) */
    reduce_fn fold[REDUCE_OPERATIONS][REDUCE_DTYPES][REDUCE_WIDTHS];
    update_fn update[UPDATE_RULES][REDUCE_DTYPES][REDUCE_WIDTHS];
    /* kernels by rule and dtype of the values */
    row_fn row[ROW_RULES][REDUCE_DTYPES];
    row_initial_fn row_initial[REDUCE_DTYPES];
    double (*products)(const float *a, const float *b, size_t elements);
};

/* Returns the kernels that this machine uses for `set`, or NULL. */
const struct reduce_kernels *reduce_kernels_of(enum reduce_set set);
/* Returns the width of targets of dtype `to`, an index in `fold` and `update`; negative: sources of
 * dtype `from` cannot be reduced to this dtype. */
int reduce_width_of(enum reduce_dtype from, enum reduce_dtype to);

/* Coefficients of one step, computed from the settings in double and rounded once. */
struct update_scalars {
    float rate, weight_decay;
    float shrink; /* factor on the parameters for AdamW: 1 - rate * weight_decay */
    float momentum;
    float taken; /* weight of the gradient in the moment: 1 - dampening, but 1 in the first step */
    float beta1, beta2, taken1, taken2;
    float adam_rate, correction2_root, epsilon;
};
struct update_scalars update_scalars(const struct update_settings *settings, uint64_t step);
/* Computes a power by repeated squaring: the same bits on every machine, which pow() does not
 * guarantee (R1). */
double update_power(double base, uint64_t exponent);
/* Returns whether `value` is in [least, below); false for NaN. */
bool update_is_within(double value, double least, double below);

extern const struct reduce_kernels reduce_kernels_c;
#ifdef __x86_64__
extern const struct reduce_kernels reduce_kernels_avx2, reduce_kernels_avx512;
#endif

#endif
