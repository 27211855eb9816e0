/* Row rules and initial values of one instruction set. Plain loops over the elements of a row, as
 * in reduce_rules.h. Each operation is rounded separately, so the bits are the same for every
 * vector width (R5, R11). Included by reduce_table.h only. */
#include "svc/reduce/reduce_rules.h"
#include "svc/reduce/rows/philox.h"

/* A row as f32, changed in place. */
struct row_view {
    const float *gradient;
    float *values, *moments;
    uint32_t dim;
};

/* Returns the gradient of element i: first divided, then with weight decay added. */
inline_always float row_gradient(const struct row_step *s, const struct row_view *row, uint32_t i)
{
    float gradient = row->gradient[i] / s->divisor;
    return s->weight_decay != 0 ? gradient + s->weight_decay * row->values[i] : gradient;
}

/* A local copy of the step lets the compiler assume that no array overlaps the step. */
static void apply_row_sgd(const struct row_step *step, const struct row_view *view)
{
    const struct row_step s = *step;
    const struct row_view row = *view;
    INDEPENDENT
    for (uint32_t i = 0; i < row.dim; i++)
        row.values[i] -= s.rate * row_gradient(&s, &row, i);
}

static void apply_row_adagrad(const struct row_step *step, const struct row_view *view)
{
    const struct row_step s = *step;
    const struct row_view row = *view;
    INDEPENDENT
    for (uint32_t i = 0; i < row.dim; i++) {
        float gradient = row_gradient(&s, &row, i);
        float sum = row.moments[i] + gradient * gradient;
        row.moments[i] = sum;
        row.values[i] -= s.rate * (gradient / (__builtin_sqrtf(sum) + s.epsilon));
    }
}

/* Number of parallel sums of squares in every instruction set: the number of elements of the widest
 * vector (R11). */
#define ROW_STRANDS 16

/* Strand j adds the squares of elements j, j + 16, j + 32, ... Then the strands are added in
 * halves. */
inline_always float row_squares(const struct row_step *s, const struct row_view *row)
{
    float strand[ROW_STRANDS] = {0};
    uint32_t whole = row->dim / ROW_STRANDS * ROW_STRANDS;
    for (uint32_t i = 0; i < whole; i += ROW_STRANDS)
        for (uint32_t j = 0; j < ROW_STRANDS; j++) {
            float gradient = row_gradient(s, row, i + j);
            strand[j] += gradient * gradient;
        }
    for (uint32_t i = whole; i < row->dim; i++) {
        float gradient = row_gradient(s, row, i);
        strand[i - whole] += gradient * gradient;
    }
    for (uint32_t half = ROW_STRANDS / 2; half > 0; half /= 2)
        for (uint32_t j = 0; j < half; j++)
            strand[j] += strand[j + half];
    return strand[0];
}

static void apply_row_adagrad_one(const struct row_step *step, const struct row_view *view)
{
    const struct row_step s = *step;
    const struct row_view row = *view;
    const float sum = row.moments[0] + row_squares(&s, &row) / (float)row.dim;
    const float rate = s.rate / (__builtin_sqrtf(sum) + s.epsilon);
    row.moments[0] = sum;
    INDEPENDENT
    for (uint32_t i = 0; i < row.dim; i++)
        row.values[i] -= rate * row_gradient(&s, &row, i);
}

static void apply_row_adam(const struct row_step *step, const struct row_view *view)
{
    const struct row_step s = *step;
    const struct row_view row = *view;
    float *moments2 = row.moments + row.dim;
    INDEPENDENT
    for (uint32_t i = 0; i < row.dim; i++) {
        float gradient = row_gradient(&s, &row, i);
        float moment1 = row.moments[i] + (gradient - row.moments[i]) * s.taken1;
        float moment2 = moments2[i] + (gradient * gradient - moments2[i]) * s.taken2;
        row.moments[i] = moment1;
        moments2[i] = moment2;
        row.values[i] -= s.adam_rate * (moment1 / (__builtin_sqrtf(moment2) + s.epsilon));
    }
}

/* The moments of FTRL are the sums z, followed by n (algorithm 1 of the paper). */
static void apply_row_ftrl(const struct row_step *step, const struct row_view *view)
{
    const struct row_step s = *step;
    const struct row_view row = *view;
    float *squares = row.moments + row.dim;
    INDEPENDENT
    for (uint32_t i = 0; i < row.dim; i++) {
        float gradient = row.gradient[i] / s.divisor;
        float sum = squares[i] + gradient * gradient, root = __builtin_sqrtf(sum);
        float sigma = (root - __builtin_sqrtf(squares[i])) / s.rate;
        float z = row.moments[i] + gradient - sigma * row.values[i];
        float beyond = z - __builtin_copysignf(s.l1, z);
        float value = -beyond / ((s.beta + root) / s.rate + s.l2);
        squares[i] = sum;
        row.moments[i] = z;
        row.values[i] = __builtin_fabsf(z) <= s.l1 ? 0 : value;
    }
}

inline_always bool row_is_finite(const float *gradient, uint32_t dim)
{
    uint32_t is_special = 0;
    for (uint32_t i = 0; i < dim; i++) {
        uint32_t bits;
        memcpy(&bits, &gradient[i], sizeof bits);
        is_special |= (bits & 0x7f800000) == 0x7f800000;
    }
    return !is_special;
}

/* Constants of one kernel. */
struct row_kernel {
    void (*apply)(const struct row_step *s, const struct row_view *row);
    vec (*load)(const void *at);
    void (*store)(void *at, vec v);
    size_t value_bytes;
};

#define ROW_VECTOR (VECTOR_BYTES / sizeof(float)) /* elements of a vector */

/* Converts a row to f32. `ret_wide` has room for one more vector; elements after the row are
 * zeros. */
inline_always void row_widen(const struct row_kernel *k, const void *values, uint32_t dim,
                             float *ret_wide)
{
    char rest[VECTOR_BYTES] = {0};
    uint32_t i = 0;
    for (; i + ROW_VECTOR <= dim; i += ROW_VECTOR)
        store_whole(ret_wide + i, k->load(element(values, i, k->value_bytes)));
    memcpy(rest, element(values, i, k->value_bytes), (dim - i) * k->value_bytes);
    store_whole(ret_wide + i, k->load(rest));
}

inline_always void row_narrow(const struct row_kernel *k, const float *wide, uint32_t dim,
                              void *ret_values)
{
    char rest[VECTOR_BYTES];
    uint32_t i = 0;
    for (; i + ROW_VECTOR <= dim; i += ROW_VECTOR)
        k->store(place(ret_values, i, k->value_bytes), load_whole(wide + i));
    k->store(rest, load_whole(wide + i));
    memcpy(place(ret_values, i, k->value_bytes), rest, (dim - i) * k->value_bytes);
}

inline_always bool row_update(const struct row_step *step, const float *gradient, uint32_t dim,
                              void *values, float *moments, const struct row_kernel k)
{
    float wide[ROW_DIM_MAX + ROW_VECTOR];
    assert(dim >= 1 && dim <= ROW_DIM_MAX);
    if (!step->accepts_nonfinite && !row_is_finite(gradient, dim))
        return false;
    if (k.value_bytes == sizeof(float)) {
        k.apply(step, &(struct row_view){gradient, values, moments, dim});
        return true;
    }
    row_widen(&k, values, dim, wide);
    k.apply(step, &(struct row_view){gradient, wide, moments, dim});
    row_narrow(&k, wide, dim, values);
    return true;
}

#define ROW(rule, dtype, bytes)                                                          \
    static bool row_##rule##_##dtype(const struct row_step *step, const float *gradient, \
                                     uint32_t dim, void *values, float *moments)         \
    {                                                                                    \
        return row_update(                                                               \
            step, gradient, dim, values, moments,                                        \
            (struct row_kernel){apply_row_##rule, load_##dtype, store_##dtype, bytes});  \
    }
#define ROWS_OF(rule) \
    ROW(rule, f32, 4) \
    ROW(rule, f16, 2) \
    ROW(rule, bf16, 2)
ROWS_OF(sgd)
ROWS_OF(adagrad)
ROWS_OF(adagrad_one)
ROWS_OF(adam)
ROWS_OF(ftrl)

/* ---- initial values, in batches ---- */

#define ROW_BATCH 16 /* elements of a batch; a multiple of every ROW_VECTOR */
#define ROW_UNIFORM_UNIT 0x1p-24
#define ROW_NORMAL_UNIT 1.8688123650118534e-05 /* 1 / sqrt(8 * (2^32 - 1) / 12) */

/* The functions below compute `elements` values from element `at` on. `at` is a multiple of
 * ROW_BATCH. Further elements of the batch have defined but unused values. */

/* Computes block by block. Vectors of several blocks would not be faster, because a short row has
 * fewer elements than such a vector. */
inline_always void row_uniform(const struct row_initial *initial, uint64_t key, uint32_t at,
                               uint32_t elements, float *ret_batch)
{
    const float unit = (float)(initial->value * ROW_UNIFORM_UNIT);
    for (uint32_t i = 0; i < elements; i += 4) {
        uint32_t words[4] = {(uint32_t)key, (uint32_t)(key >> 32), (at + i) / 4,
                             (uint32_t)initial->kind};
        philox(initial->seed, words);
        for (uint32_t w = 0; w < 4; w++)
            ret_batch[i + w] = (float)(2 * (int32_t)(words[w] >> 8) + 1 - (1 << 24)) * unit;
    }
}

/* Computes `lanes` successive blocks in parallel, so that the compiler vectorizes them. */
inline_always void row_philox(const struct row_initial *initial, uint64_t key, uint32_t first,
                              uint32_t word[4][ROW_BATCH], const uint32_t lanes)
{
    uint32_t key0 = (uint32_t)initial->seed, key1 = (uint32_t)(initial->seed >> 32);
    for (uint32_t b = 0; b < lanes; b++) {
        word[0][b] = (uint32_t)key;
        word[1][b] = (uint32_t)(key >> 32);
        word[2][b] = first + b;
        word[3][b] = (uint32_t)initial->kind;
    }
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        INDEPENDENT
        for (uint32_t b = 0; b < lanes; b++)
            philox_round(&word[0][b], &word[1][b], &word[2][b], &word[3][b], key0, key1);
        key0 += PHILOX_STEP0;
        key1 += PHILOX_STEP1;
    }
}

inline_always void row_normal_lanes(const struct row_initial *initial, uint64_t key, uint32_t at,
                                    float *ret_batch, const uint32_t lanes)
{
    const float unit = (float)(initial->value * ROW_NORMAL_UNIT);
    uint32_t word[4][ROW_BATCH];
    row_philox(initial, key, at, word, lanes);
    for (uint32_t i = 0; i < lanes; i++) {
        uint32_t sum = 0;
        for (int w = 0; w < 4; w++)
            sum += (word[w][i] & 0xffff) + (word[w][i] >> 16);
        ret_batch[i] = (float)((int32_t)sum - 262140) * unit;
    }
}

inline_always void row_normal(const struct row_initial *initial, uint64_t key, uint32_t at,
                              uint32_t elements, float *ret_batch)
{
    if (elements <= 4)
        row_normal_lanes(initial, key, at, ret_batch, 4);
    else
        row_normal_lanes(initial, key, at, ret_batch, ROW_BATCH);
}

inline_always void row_constant(const struct row_initial *initial, float *ret_batch)
{
    const float value = initial->kind == ROW_CONSTANT ? (float)initial->value : 0;
    for (uint32_t i = 0; i < ROW_BATCH; i++)
        ret_batch[i] = value;
}

inline_always void row_fill(const struct row_initial *initial, uint64_t key, uint32_t dim,
                            void *ret_values, void (*const store)(void *at, vec v),
                            const size_t value_bytes)
{
    float batch[ROW_BATCH] = {0};
    char narrow[ROW_BATCH * sizeof(float)];
    for (uint32_t at = 0; at < dim; at += ROW_BATCH) {
        uint32_t elements = dim - at < ROW_BATCH ? dim - at : ROW_BATCH;
        if (initial->kind == ROW_UNIFORM)
            row_uniform(initial, key, at, elements, batch);
        else if (initial->kind == ROW_NORMAL)
            row_normal(initial, key, at, elements, batch);
        else
            row_constant(initial, batch);
        for (uint32_t i = 0; i < ROW_BATCH; i += ROW_VECTOR)
            store(narrow + i * value_bytes, load_whole(batch + i));
        memcpy(place(ret_values, at, value_bytes), narrow, elements * value_bytes);
    }
}

#define ROW_INITIAL(dtype, bytes)                                                                  \
    static void row_initial_##dtype(const struct row_initial *initial, uint64_t key, uint32_t dim, \
                                    void *ret_values)                                              \
    {                                                                                              \
        row_fill(initial, key, dim, ret_values, store_##dtype, bytes);                             \
    }
ROW_INITIAL(f32, 4)
ROW_INITIAL(f16, 2)
ROW_INITIAL(bf16, 2)
