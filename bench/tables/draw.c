/* Draws keys and gradients. The worker that pushes draws a gradient, and the check draws the same
 * gradient again. */
#include "bench/tables/draw.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define POWER 1.05 /* exponent of the power law */

uint64_t tables_mix(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t x = a * UINT64_C(0x9e3779b97f4a7c15) + b;
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    x = ((x ^ x >> 32) + c) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

/* Returns a number from 0 to rows - 1. With a power law the probability of the number k is
 * proportional to (k + 1)^-POWER; the number is computed by the inverse of the integral of this
 * function. */
static uint64_t draw_key(const struct tables_plan *plan, uint64_t drawn)
{
    if (!plan->is_skewed)
        return drawn % plan->rows;
    double u = (double)(drawn >> 11) * 0x1p-53, s = 1 - POWER;
    double x = pow(1 + u * (pow((double)plan->rows + 1, s) - 1), 1 / s);
    uint64_t key = (uint64_t)x - 1;
    return key < plan->rows ? key : plan->rows - 1;
}

void tables_draw_keys(const struct tables_plan *plan, uint32_t rank, uint32_t clock,
                      uint64_t *ret_keys)
{
    uint64_t stream = tables_mix(plan->seed, rank, clock);
    for (uint64_t i = 0; i < plan->batch; i++)
        ret_keys[i] = draw_key(plan, tables_mix(stream, i, 1));
}

static uint32_t draw_weight(const struct tables_plan *plan, uint32_t rank, uint32_t clock,
                            uint64_t key)
{
    return clock == 0 ? 1 : 1 + (tables_mix(plan->seed + rank, clock, key) & 1);
}

void tables_draw_gradients(const struct tables_plan *plan, uint32_t rank, uint32_t clock,
                           const uint64_t *keys, size_t count, float *ret_gradients)
{
    for (size_t i = 0; i < count; i++) {
        float weight = (float)draw_weight(plan, rank, clock, keys[i]);
        for (uint32_t element = 0; element < plan->spec.dim; element++)
            *ret_gradients++ = weight * tables_factor(element);
    }
}

/* ---- all rows ---- */

/* Keys and rows of one block of the table. */
struct draw_block {
    uint64_t keys[TABLES_BLOCK];
    float rows[];
};

static struct draw_block *block_create(const struct tables_plan *plan)
{
    struct draw_block *block = NULL;
    return malloc(sizeof *block + (size_t)TABLES_BLOCK * plan->spec.dim * sizeof *block->rows);
}

/* Sets the keys from `first` on. Returns their number. */
static size_t block_set(const struct tables_plan *plan, uint64_t first, struct draw_block *block)
{
    uint64_t left = plan->rows - first;
    size_t count = left < TABLES_BLOCK ? (size_t)left : TABLES_BLOCK;
    for (size_t i = 0; i < count; i++)
        block->keys[i] = first + i;
    return count;
}

/* Makes the rows of one block. The pull at the end limits the memory of pushes that are not applied
 * yet. */
static int make_block(struct tables_worker *w, uint64_t first, struct draw_block *block)
{
    size_t count = block_set(w->plan, first, block);
    int error = 0;
    if (w->rank == 0) {
        tables_draw_gradients(w->plan, 0, 0, block->keys, count, block->rows);
        error = tables_push(w, block->keys, count, block->rows);
    }
    if (error == 0)
        error = gp_clock(w->job);
    return error < 0 ? error : tables_pull(w, block->keys, 1, block->rows);
}

int tables_make_rows(struct tables_worker *w)
{
    struct draw_block *block = block_create(w->plan);
    int error = block ? 0 : -ENOMEM;
    for (uint64_t first = 0; error == 0 && first < w->plan->rows; first += TABLES_BLOCK)
        error = make_block(w, first, block);
    free(block);
    return error < 0 ? error : tables_barrier(w);
}

/* Adds the weights of all drawn gradients to the sums. */
static void sums_add(const struct tables_plan *plan, uint64_t *keys, uint32_t *sums)
{
    for (uint64_t key = 0; key < plan->rows; key++)
        sums[key] = 1;
    for (uint32_t rank = 0; rank < plan->workers; rank++) {
        for (uint32_t clock = 1; clock <= plan->clocks; clock++) {
            tables_draw_keys(plan, rank, clock, keys);
            for (uint32_t i = 0; i < plan->batch; i++)
                sums[keys[i]] += draw_weight(plan, rank, clock, keys[i]);
        }
    }
}

static bool row_is_right(const struct tables_plan *plan, const float *row, uint32_t sum)
{
    for (uint32_t element = 0; element < plan->spec.dim; element++)
        if (row[element] != -(float)sum * tables_factor(element))
            return false;
    return true;
}

static int check_blocks(struct tables_worker *w, struct draw_block *block, const uint32_t *sums)
{
    const struct tables_plan *plan = w->plan;
    for (uint64_t first = 0; first < plan->rows; first += TABLES_BLOCK) {
        size_t count = block_set(plan, first, block);
        int error = tables_pull(w, block->keys, count, block->rows);
        if (error < 0)
            return error;
        for (size_t i = 0; i < count; i++)
            w->result->wrong +=
                !row_is_right(plan, block->rows + i * plan->spec.dim, sums[first + i]);
    }
    return 0;
}

int tables_check_rows(struct tables_worker *w)
{
    struct draw_block *block = block_create(w->plan);
    uint64_t *keys = malloc(w->plan->batch * sizeof *keys);
    uint32_t *sums = malloc(w->plan->rows * sizeof *sums);
    int error = block && keys && sums ? 0 : -ENOMEM;
    if (error == 0) {
        sums_add(w->plan, keys, sums);
        error = check_blocks(w, block, sums);
    }
    free(sums);
    free(keys);
    free(block);
    return error;
}
