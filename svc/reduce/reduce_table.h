/* Table of all kernels of one instruction set. Included by reduce_<set>.c, which defines
 * VECTOR_BYTES and the table's name KERNELS. */
#include "svc/reduce/reduce_products.h"
#include "svc/reduce/rows/row_kernels.h"

#define FOLDS(operation)                                               \
    {                                                                  \
        [REDUCE_F32] = {operation##_f32_f32, operation##_f32_f32},     \
        [REDUCE_F64] = {operation##_f64_f64, operation##_f64_f64},     \
        [REDUCE_F16] = {operation##_f16_f16, operation##_f16_f32},     \
        [REDUCE_BF16] = {operation##_bf16_bf16, operation##_bf16_f32}, \
        [REDUCE_I32] = {operation##_i32_i32, operation##_i32_i32},     \
        [REDUCE_I64] = {operation##_i64_i64, operation##_i64_i64},     \
    }
#define WEIGHTED_FOLDS                                           \
    {                                                            \
        [REDUCE_F32] = {weighted_f32_f32, weighted_f32_f32},     \
        [REDUCE_F64] = {weighted_f64_f64, weighted_f64_f64},     \
        [REDUCE_F16] = {weighted_f16_f16, weighted_f16_f32},     \
        [REDUCE_BF16] = {weighted_bf16_bf16, weighted_bf16_f32}, \
    }
#define UPDATES(rule)                                        \
    {                                                        \
        [REDUCE_F32] = {rule##_f32_f32, rule##_f32_f32},     \
        [REDUCE_F16] = {rule##_f16_f16, rule##_f16_f32},     \
        [REDUCE_BF16] = {rule##_bf16_bf16, rule##_bf16_f32}, \
    }
/* clang-format off */
#define ROWS(rule)                         \
    {                                      \
        [REDUCE_F32] = row_##rule##_f32,   \
        [REDUCE_F16] = row_##rule##_f16,   \
        [REDUCE_BF16] = row_##rule##_bf16, \
    }
/* clang-format on */
const struct reduce_kernels KERNELS = {.fold = {[REDUCE_SUM] = FOLDS(sum),
                                                [REDUCE_MIN] = FOLDS(min),
                                                [REDUCE_MAX] = FOLDS(max),
                                                [REDUCE_PRODUCT] = FOLDS(product),
                                                [REDUCE_WEIGHTED] = WEIGHTED_FOLDS},
                                       .update = {[UPDATE_SGD] = UPDATES(sgd),
                                                  [UPDATE_MOMENTUM] = UPDATES(momentum),
                                                  [UPDATE_NESTEROV] = UPDATES(nesterov),
                                                  [UPDATE_ADAM] = UPDATES(adam),
                                                  [UPDATE_ADAMW] = UPDATES(adamw)},
                                       .row = {[ROW_SGD] = ROWS(sgd),
                                               [ROW_ADAGRAD] = ROWS(adagrad),
                                               [ROW_ADAGRAD_ONE] = ROWS(adagrad_one),
                                               [ROW_ADAM] = ROWS(adam),
                                               [ROW_FTRL] = ROWS(ftrl)},
                                       .row_initial = {[REDUCE_F32] = row_initial_f32,
                                                       [REDUCE_F16] = row_initial_f16,
                                                       [REDUCE_BF16] = row_initial_bf16},
                                       .products = products_f32};
