/* One shard: finds and adds rows in batches, so that the cache misses of many keys overlap. Owns
 * rows and index. */
#include "svc/lane/table/shard.h"

#include "svc/wire/mixed_key.h"

#include <assert.h>

/* Distance in keys between the three steps of a batch: load the index entry into the cache, load
 * the row, read both. */
#define SHARD_AHEAD 18

int table_shard_init(struct table_shard *shard, struct allowance *allowance,
                     const struct shard_options *options)
{
    assert(options->shard_bits <= MIXED_KEY_SHARD_BITS_MAX);
    *shard = (struct table_shard){.options = *options};
    table_rows_init(&shard->rows, allowance, options->layout.row_bytes);
    return table_index_init(&shard->index, allowance, &shard->rows, options->shard_bits,
                            options->rows_hint);
}

void table_shard_fini(struct table_shard *shard)
{
    table_index_fini(&shard->index);
    table_rows_fini(&shard->rows);
}

bool table_shard_has_range(const struct table_shard *shard, uint64_t mixed)
{
    return mixed_key_shard(mixed, shard->options.shard_bits) == shard->options.number;
}

/* Loads the index entry of key `at`, and the row of the key SHARD_AHEAD before it, into the
 * cache. */
static void shard_look_ahead(const struct table_shard *shard, const uint64_t *mixed, size_t count,
                             size_t at, uint32_t *ret_rows)
{
    if (at < count)
        table_index_prefetch(&shard->index, mixed[at]);
    if (at < SHARD_AHEAD || at - SHARD_AHEAD >= count)
        return;
    at -= SHARD_AHEAD;
    ret_rows[at] = table_index_guess(&shard->index, mixed[at]);
    if (ret_rows[at] != ROWS_NONE)
        __builtin_prefetch(rows_at(&shard->rows, ret_rows[at]));
}

/* Returns the row of the key. `guess` can be wrong: the row of another key with the same tag, or a
 * result from before this key was added. */
static uint32_t shard_row_of(const struct table_shard *shard, uint64_t mixed, uint32_t guess)
{
    if (guess != ROWS_NONE && rows_key(&shard->rows, guess) == mixed)
        return guess;
    return table_index_find(&shard->index, mixed);
}

void table_shard_find(const struct table_shard *shard, const uint64_t *mixed, size_t count,
                      uint32_t *ret_rows)
{
    for (size_t at = 0; at < count + 2 * SHARD_AHEAD; at++) {
        shard_look_ahead(shard, mixed, count, at, ret_rows);
        if (at < 2 * SHARD_AHEAD)
            continue;
        size_t i = at - 2 * SHARD_AHEAD;
        ret_rows[i] = shard_row_of(shard, mixed[i], ret_rows[i]);
    }
}

static int shard_add(struct table_shard *shard, uint64_t mixed, uint32_t *ret_row)
{
    struct rows_mark mark = table_rows_mark(&shard->rows);
    int error = table_rows_add(&shard->rows, mixed, ret_row);
    if (error < 0)
        return error;
    error = table_index_add(&shard->index, mixed, *ret_row);
    if (error < 0) {
        table_rows_reset(&shard->rows, mark);
        return error;
    }
    shard->options.birth(shard->options.context, mixed, shard_values(shard, *ret_row));
    return 0;
}

/* Removes the rows added since `mark`. Such rows have references from mark.end on, because
 * references only grow. A key that is in `mixed` twice is removed once. */
static void shard_take_back(struct table_shard *shard, const uint64_t *mixed, size_t count,
                            struct rows_mark mark, const uint32_t *rows)
{
    for (size_t i = 0; i < count; i++)
        if (rows[i] >= mark.end && table_index_find(&shard->index, mixed[i]) != ROWS_NONE)
            table_index_remove(&shard->index, mixed[i]);
    table_rows_reset(&shard->rows, mark);
}

int64_t table_shard_add(struct table_shard *shard, const uint64_t *mixed, size_t count,
                        uint32_t *ret_rows)
{
    struct rows_mark mark = table_rows_mark(&shard->rows);
    for (size_t at = 0; at < count + 2 * SHARD_AHEAD; at++) {
        int error = 0;
        shard_look_ahead(shard, mixed, count, at, ret_rows);
        if (at < 2 * SHARD_AHEAD)
            continue;
        size_t i = at - 2 * SHARD_AHEAD;
        ret_rows[i] = shard_row_of(shard, mixed[i], ret_rows[i]);
        if (ret_rows[i] == ROWS_NONE)
            error = shard_add(shard, mixed[i], &ret_rows[i]);
        if (error < 0) {
            shard_take_back(shard, mixed, i, mark, ret_rows);
            return error;
        }
    }
    return (int64_t)(shard->rows.count - mark.count);
}

size_t table_shard_walk(const struct table_shard *shard, uint64_t from, uint32_t *ret_rows,
                        size_t most)
{
    uint32_t bits = shard->options.shard_bits;
    uint64_t first = mixed_key_first(shard->options.number, bits);
    if (from > mixed_key_last(shard->options.number, bits))
        return 0;
    return table_index_walk(&shard->index, from < first ? first : from, ret_rows, most);
}
