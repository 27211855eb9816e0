/* The rows of one shard with their index: finds, adds and lists rows by hashed key. All memory
 * comes from an allowance, and no call blocks. All functions must run on the lane's thread. */
#ifndef GRADPOOL_LANE_TABLE_SHARD_H
#define GRADPOOL_LANE_TABLE_SHARD_H

#include "svc/lane/table/index.h"
#include "svc/lane/table/rows.h"

/* Sets the initial values of a new row. Before the call the values are zeros, or the values of a
 * removed row. The function must not change the moments, which are zeros. */
typedef void (*shard_birth_fn)(void *context, uint64_t mixed, void *ret_values);

struct shard_options {
    uint32_t number, shard_bits; /* shard `number` of 2^shard_bits shards; at most 12 bits */
    struct rows_layout layout;
    uint64_t rows_hint;   /* number of rows that a copy will add; 0: unknown (INDEX_DEPTH_FREE) */
    shard_birth_fn birth; /* `context` must stay valid */
    void *context;
};

/* The caller may read rows.count; the allowance counts the memory. */
struct table_shard {
    struct shard_options options;
    struct table_rows rows;
    struct table_index index;
};

/* Creates an empty shard of one page. `allowance` must stay valid until table_shard_fini(), and
 * `shard` must stay at its address. Returns 0 or an error of allowance_alloc(); nothing stays
 * allocated then. */
int table_shard_init(struct table_shard *shard, struct allowance *allowance,
                     const struct shard_options *options);
/* Frees the rows. A zeroed shard is allowed. */
void table_shard_fini(struct table_shard *shard);

/* Returns whether the mixed key belongs to the shard. */
bool table_shard_has_range(const struct table_shard *shard, uint64_t mixed);

/* Finds the row of each of `count` keys of the shard; ROWS_NONE: absent. Adds nothing. Cost: one
 * cache miss in the index and one in the rows for each key; the misses of several keys overlap.
 * Ascending keys are fastest. */
void table_shard_find(const struct table_shard *shard, const uint64_t *mixed, size_t count,
                      uint32_t *ret_rows);

/* Like table_shard_find(), and adds the absent rows. Returns the number of added rows, or an error
 * of table_rows_add() or table_index_add(). After an error no row was added, and the call may be
 * repeated when there is room. `mixed` may contain a key twice. */
int64_t table_shard_add(struct table_shard *shard, const uint64_t *mixed, size_t count,
                        uint32_t *ret_rows);

/* Writes the rows of the smallest keys from `from` on, in ascending order, at most `most`. Returns
 * their number, which is less than `most` only at the end. The next call begins after the last key;
 * rows may be added between the calls. */
size_t table_shard_walk(const struct table_shard *shard, uint64_t from, uint32_t *ret_rows,
                        size_t most);

/* Returns the values of a row of this shard; the moments follow them. */
static inline void *shard_values(const struct table_shard *shard, uint32_t row)
{
    return rows_at(&shard->rows, row) + shard->options.layout.values_at;
}
static inline float *shard_moments(const struct table_shard *shard, uint32_t row)
{
    return (float *)(void *)(rows_at(&shard->rows, row) + shard->options.layout.moments_at);
}

#endif
