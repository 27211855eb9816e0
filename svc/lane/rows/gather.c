/* Copies rows of a shard in batches, so that the cache misses of several index reads overlap. */
#include "svc/lane/rows/gather.h"

#include "svc/wire/mixed_key.h"

#include <errno.h>
#include <string.h>

static void gather_row(const struct lane_table *table, const struct lane_shard *shard, uint64_t key,
                       uint32_t row, char *ret_row)
{
    char initial[ROW_DIM_MAX * sizeof(float)] __attribute__((aligned(8)));
    const void *values = initial;
    if (row != ROWS_NONE)
        values = shard_values(shard->store, row);
    else
        table->initial(&table->initial_spec, mixed_key_undo(key, table->salt), table->terms->dim,
                       initial);
    if (table->terms->dtype == table->terms->wire)
        memcpy(ret_row, values, table->wire_bytes);
    else
        reduce_convert(table->terms->dtype, table->terms->wire, values, ret_row, table->terms->dim);
}

static int gather_batch(const struct lane_table *table, const struct lane_shard *shard,
                        const uint64_t *keys, uint32_t count, char *ret_rows)
{
    uint32_t rows[GATHER_KEYS];
    for (uint32_t i = 0; i < count; i++)
        if (!table_shard_has_range(shard->store, keys[i]))
            return -EBADMSG;
    table_shard_find(shard->store, keys, count, rows);
    for (uint32_t i = 0; i < count; i++)
        gather_row(table, shard, keys[i], rows[i], ret_rows + i * table->wire_bytes);
    return 0;
}

int gather_rows(const struct lane_table *table, const struct lane_shard *shard,
                const uint64_t *keys, uint32_t count, char *ret_rows)
{
    int error = 0;
    for (uint32_t at = 0; error == 0 && at < count; at += GATHER_KEYS) {
        uint32_t left = count - at;
        error = gather_batch(table, shard, keys + at, left < GATHER_KEYS ? left : GATHER_KEYS,
                             ret_rows + at * table->wire_bytes);
    }
    return error;
}
