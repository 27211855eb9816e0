/* Rows of tables: initial values, and update rules that change one row in place. Pure functions for
 * any thread: no state, no allocation, no I/O.
 *
 * A row has `dim` values of f32, f16 or bf16, and the f32 moments of its rule. A row without a
 * gradient keeps all bits of its values and moments.
 *
 * Sources of the formulas (R11; PyTorch is release 1.13):
 *
 *   SGD          torch.optim.SGD without momentum
 *   ADAGRAD      torch.optim.Adagrad on sparse gradients, lr_decay 0, first sum 0
 *   ADAGRAD_ONE  Adagrad with one sum for each row: the mean of the squares of the row's gradient
 *                is added, as in the row-wise Adagrad of FBGEMM (Khudia et al. 2021)
 *   ADAM         torch.optim.SparseAdam: epsilon is not divided by the second correction, unlike in
 *                UPDATE_ADAM
 *   FTRL         FTRL-Proximal: McMahan et al., "Ad Click Prediction", KDD 2013, algorithm 1; the
 *                first update replaces initial values, so a table of this rule starts at zeros */
#ifndef GRADPOOL_REDUCE_ROWS_H
#define GRADPOOL_REDUCE_ROWS_H

#include "svc/reduce/reduce.h"

/* Rules for rows. The numbers are also used in messages and in gradpool.h. */
enum row_rule {
    ROW_SGD = 1,
    ROW_ADAGRAD = 2,
    ROW_ADAGRAD_ONE = 3,
    ROW_ADAM = 4,
    ROW_FTRL = 5,
};
#define ROW_RULES 6 /* the largest number plus one */
#define ROW_DIM_MAX 4096

/* Settings of one clock (one update of the table). A rule ignores the settings that it does not
 * use. */
struct row_settings {
    double rate;
    /* for all rules except FTRL; the product with the value is added to the gradient, as in
     * update.h */
    double weight_decay;
    double beta1, beta2; /* for ADAM */
    double epsilon;      /* for ADAGRAD, ADAGRAD_ONE and ADAM */
    double beta, l1, l2; /* for FTRL */
};

/* Coefficients of one clock for all rows of a table, computed in double and rounded once. */
struct row_step {
    float divisor; /* divisor of each gradient; 1: no division */
    float rate, weight_decay, epsilon;
    float taken1, taken2, adam_rate;
    float beta, l1, l2;
    bool accepts_nonfinite;
};

/* Applies one update to the row of `values` and `moments`. `gradient` has `dim` f32 values: the sum
 * over all ranks, in rank order. Returns false if the gradient has a NaN or an infinity; the row is
 * then unchanged. A step with `accepts_nonfinite` always updates (R3).
 *
 * `dim` is from 1 to ROW_DIM_MAX. `values` need no alignment if they are f16 or bf16; f32 values,
 * moments and gradient are aligned to 4 bytes. The arrays do not overlap. Moments are stored one
 * after another: `dim` of the first, then `dim` of the second; ADAGRAD_ONE has a single f32. The
 * moments of a new row are zeros. */
typedef bool (*row_fn)(const struct row_step *step, const float *gradient, uint32_t dim,
                       void *values, float *moments);

/* Returns the kernel for values of f32, f16 or bf16, or NULL if there is none on this machine. */
row_fn row_pick(enum reduce_set set, enum row_rule rule, enum reduce_dtype dtype);

/* Computes the coefficients. `step` counts the updates of the table, from 1 (used by ADAM).
 * `divisor`: number of members for a mean, otherwise 1. The settings must be valid
 * (row_wrong()). */
struct row_step row_step(const struct row_settings *settings, uint64_t step, uint32_t divisor,
                         bool accepts_nonfinite);

/* The arguments of these three functions may come unchecked from a peer. row_moments() returns the
 * number of f32 moments of a row, or -1 if there is no such rule. */
int row_moments(unsigned rule, uint32_t dim);
/* Returns the name of the rule, such as "adagrad", or "?" if it is unknown. */
const char *row_rule_name(unsigned rule);
/* Returns the name of the first setting that is invalid for the rule, or NULL if all are valid. */
const char *row_wrong(unsigned rule, const struct row_settings *settings);

/* ---- initial values ---- */

enum row_initial_kind {
    ROW_ZEROS = 0,
    ROW_CONSTANT = 1,
    ROW_UNIFORM = 2, /* between -value and value, both excluded */
    ROW_NORMAL = 3,  /* mean 0, standard deviation `value`, bounded at 4.9 times `value` */
};
#define ROW_INITIAL_KINDS 4

struct row_initial {
    enum row_initial_kind kind;
    double value;
    uint64_t seed;
};

/* Computes the `dim` initial values of a row. `key`: the user's key of the row, not the mixed key.
 * A value depends only on (kind, value, seed, key, element), so every process and every machine
 * computes the same bits. The random words are Philox4x32-10 with key = seed and counter = {low
 * word of key, high word of key, block, kind}:
 *
 *   UNIFORM  element e is word e % 4 of block e / 4; k = 2 * (word >> 8) + 1 - 2^24; the element is
 *            k times the f32 value * 2^-24
 *   NORMAL   element e is block e; k = sum of the eight 16-bit halves of the block - 262140; the
 *            element is k times the f32 value / sqrt(8 * (2^32 - 1) / 12)
 *
 * k is exact in f32. The product is rounded once, and once more to f16 or bf16. */
typedef void (*row_initial_fn)(const struct row_initial *initial, uint64_t key, uint32_t dim,
                               void *ret_values);

/* Returns the kernel, or NULL if there is none on this machine. */
row_initial_fn row_initial_pick(enum reduce_set set, enum reduce_dtype dtype);
/* Returns the name of the first invalid field, "kind" or "value", or NULL if all are valid. The
 * argument may come unchecked from a peer. */
const char *row_initial_wrong(const struct row_initial *initial);

#endif
