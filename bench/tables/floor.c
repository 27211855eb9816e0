/* Owns the shards of the store. A large block is in huge pages, as in a lane. */
#include "bench/tables/floor.h"

#include "bench/tables/draw.h"
#include "svc/lane/table/shard.h"
#include "svc/reduce/rows/rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SHARD_BITS 6
#define SHARDS (1u << SHARD_BITS)
#define SALT UINT64_C(0x5a17)
#define ROWS_AHEAD 8 /* number of rows whose memory is prefetched, as in a lane */
#define PAGE_BYTES 4096u

struct floor {
    struct allowance allowance;
    uint32_t dim;
    row_fn update;
    struct row_step step;
    struct table_shard shards[SHARDS];
};

struct floor_batch {
    size_t count;
    uint64_t *keys;   /* hashes of the keys, ascending */
    float *gradients; /* gradients of the keys, in the order of `keys` */
    uint32_t *rows;   /* positions of the batch's rows in their shard, set by floor_apply() */
};

static uint32_t floor_shard(uint64_t mixed) { return (uint32_t)(mixed >> (64 - SHARD_BITS)); }

static int floor_alloc(void *context, size_t bytes, void **ret_memory)
{
    (void)context;
    size_t page = bytes >= ROWS_BLOCK_BYTES ? ROWS_BLOCK_BYTES : PAGE_BYTES;
    void *memory =
        bytes < PAGE_BYTES ? malloc(bytes) : aligned_alloc(page, (bytes + page - 1) / page * page);
    if (!memory)
        return -ENOMEM;
    if (bytes >= ROWS_BLOCK_BYTES)
        (void)madvise(memory, bytes, MADV_HUGEPAGE);
    *ret_memory = memset(memory, 0, bytes);
    return 0;
}

static void floor_release(void *context, void *memory, size_t bytes)
{
    (void)context;
    (void)bytes;
    free(memory);
}

/* Writes no first values: all values of a row begin with 0, and the memory of a new row is 0. */
static void floor_birth(void *context, uint64_t mixed, void *ret_values)
{
    (void)context;
    (void)mixed;
    (void)ret_values;
}

struct floor *floor_create(uint32_t dim, double rate, double epsilon)
{
    const struct row_settings settings = {.rate = rate, .epsilon = epsilon};
    struct floor *floor = calloc(1, sizeof *floor);
    int error = floor ? 0 : -ENOMEM;
    if (error < 0)
        return NULL;
    floor->allowance =
        (struct allowance){.alloc = floor_alloc, .free = floor_release, .limit_bytes = UINT64_MAX};
    floor->dim = dim;
    floor->update = row_pick(REDUCE_BEST, ROW_ADAGRAD, REDUCE_F32);
    floor->step = row_step(&settings, 1, 1, false);
    for (uint32_t i = 0; error == 0 && i < SHARDS; i++) {
        const struct shard_options options = {.number = i,
                                              .shard_bits = SHARD_BITS,
                                              .layout =
                                                  rows_layout((uint32_t)(dim * sizeof(float)), dim),
                                              .birth = floor_birth};
        error = table_shard_init(&floor->shards[i], &floor->allowance, &options);
    }
    if (error == 0)
        return floor;
    floor_free(floor);
    return NULL;
}

void floor_free(struct floor *floor)
{
    for (uint32_t i = 0; floor && i < SHARDS; i++)
        table_shard_fini(&floor->shards[i]);
    free(floor);
}

/* ---- batches ---- */

struct floor_key {
    uint64_t mixed;
    size_t position;
};

static int compare_floor_keys(const void *a, const void *b)
{
    uint64_t left = ((const struct floor_key *)a)->mixed,
             right = ((const struct floor_key *)b)->mixed;
    return left < right ? -1 : left > right;
}

static void batch_fill(const struct floor *floor, struct floor_key *sorted, const float *gradients,
                       struct floor_batch *batch)
{
    uint32_t dim = floor->dim;
    qsort(sorted, batch->count, sizeof *sorted, compare_floor_keys);
    for (size_t i = 0; i < batch->count; i++) {
        batch->keys[i] = sorted[i].mixed;
        memcpy(batch->gradients + i * dim, gradients + sorted[i].position * dim,
               dim * sizeof *gradients);
    }
}

struct floor_batch *floor_batch_create(const struct floor *floor, const uint64_t *keys,
                                       size_t count, const float *gradients)
{
    struct floor_key *sorted = malloc(count * sizeof *sorted);
    struct floor_batch *batch = calloc(1, sizeof *batch);
    if (batch) {
        batch->count = count;
        batch->keys = malloc(count * sizeof *batch->keys);
        batch->gradients = malloc(count * floor->dim * sizeof *batch->gradients);
        batch->rows = malloc(count * sizeof *batch->rows);
    }
    bool is_whole = batch && sorted && batch->keys && batch->gradients && batch->rows;
    for (size_t i = 0; is_whole && i < count; i++)
        sorted[i] = (struct floor_key){tables_mix(SALT, keys[i], 0), i};
    if (is_whole) {
        batch_fill(floor, sorted, gradients, batch);
    } else {
        floor_batch_free(batch);
        batch = NULL;
    }
    free(sorted);
    return batch;
}

void floor_batch_free(struct floor_batch *batch)
{
    if (!batch)
        return;
    free(batch->keys);
    free(batch->gradients);
    free(batch->rows);
    free(batch);
}

/* ---- rows ---- */

static int floor_apply_shard(struct floor *floor, struct table_shard *shard,
                             const struct floor_batch *batch, size_t first, size_t end)
{
    const float *gradient = batch->gradients + first * floor->dim;
    int64_t births = table_shard_add(shard, batch->keys + first, end - first, batch->rows);
    if (births < 0)
        return (int)births;
    for (size_t i = 0; i < end - first; i++, gradient += floor->dim) {
        if (i + ROWS_AHEAD < end - first)
            __builtin_prefetch(rows_at(&shard->rows, batch->rows[i + ROWS_AHEAD]), 1);
        (void)floor->update(&floor->step, gradient, floor->dim, shard_values(shard, batch->rows[i]),
                            shard_moments(shard, batch->rows[i]));
    }
    return 0;
}

int floor_apply(struct floor *floor, const struct floor_batch *batch)
{
    int error = 0;
    for (size_t first = 0, end; error == 0 && first < batch->count; first = end) {
        uint32_t shard = floor_shard(batch->keys[first]);
        for (end = first; end < batch->count && floor_shard(batch->keys[end]) == shard;)
            end++;
        error = floor_apply_shard(floor, &floor->shards[shard], batch, first, end);
    }
    return error;
}

const float *floor_row(const struct floor *floor, uint64_t key)
{
    uint64_t mixed = tables_mix(SALT, key, 0);
    const struct table_shard *shard = &floor->shards[floor_shard(mixed)];
    uint32_t row;
    table_shard_find(shard, &mixed, 1, &row);
    return row == ROWS_NONE ? NULL : shard_values(shard, row);
}
