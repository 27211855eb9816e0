/* Folds gradients of duplicate keys, and spreads pulled rows. */
#include "client/lib/table/fold.h"

#include <string.h>

#define DIM_MAX 4096
#define AHEAD 8 /* number of rows to prefetch; the positions of sorted keys are in random order */

struct row_fold {
    const struct table_keys *keys;
    enum reduce_dtype dtype;
    uint32_t dim;
    size_t row_bytes;
    const char *gradients;
};

static const char *gradient_of(const struct row_fold *fold, uint32_t place)
{
    return fold->gradients + (size_t)fold->keys->places[place].position * fold->row_bytes;
}

static void fold_add(float *restrict sum, const float *restrict row, uint32_t dim)
{
    for (uint32_t i = 0; i < dim; i++)
        sum[i] += row[i];
}

static void fold_floats(const struct row_fold *fold, uint32_t first, uint32_t end, float *ret_row)
{
    memcpy(ret_row, gradient_of(fold, first), fold->row_bytes);
    for (uint32_t place = first + 1; place < end; place++)
        fold_add(ret_row, (const float *)gradient_of(fold, place), fold->dim);
}

static void fold_halves(const struct row_fold *fold, uint32_t first, uint32_t end, void *ret_row)
{
    float sum[DIM_MAX], row[DIM_MAX];
    reduce_convert(fold->dtype, REDUCE_F32, gradient_of(fold, first), sum, fold->dim);
    for (uint32_t place = first + 1; place < end; place++) {
        reduce_convert(fold->dtype, REDUCE_F32, gradient_of(fold, place), row, fold->dim);
        fold_add(sum, row, fold->dim);
    }
    reduce_convert(REDUCE_F32, fold->dtype, sum, ret_row, fold->dim);
}

static void fold_run(const struct row_fold *fold, uint32_t run, void *ret_row)
{
    uint32_t first = fold->keys->starts[run], end = fold->keys->starts[run + 1];
    if (end - first == 1)
        memcpy(ret_row, gradient_of(fold, first), fold->row_bytes);
    else if (fold->dtype == REDUCE_F32)
        fold_floats(fold, first, end, ret_row);
    else
        fold_halves(fold, first, end, ret_row);
}

void table_fold(const struct table_keys *keys, enum reduce_dtype dtype, uint32_t dim,
                const void *gradients, void *ret_rows)
{
    struct row_fold fold = {keys, dtype, dim, dim * reduce_element_bytes(dtype), gradients};
    for (uint32_t run = 0; run < keys->count; run++) {
        if (run + AHEAD < keys->count)
            __builtin_prefetch(gradient_of(&fold, keys->starts[run + AHEAD]));
        fold_run(&fold, run, (char *)ret_rows + run * fold.row_bytes);
    }
}

void table_spread(const struct table_keys *keys, size_t row_bytes, const void *rows, void *ret_rows)
{
    for (uint32_t i = 0; i < keys->positions; i++) {
        const struct table_place *place = &keys->places[i];
        memcpy((char *)ret_rows + place->position * row_bytes,
               (const char *)rows + place->run * row_bytes, row_bytes);
    }
}
