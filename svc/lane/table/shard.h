/* The rows of one shard with their index: rows are found, added and walked by mixed key. Pure: all
 * memory comes from an allowance, and no call blocks. Thread: the lane's. */
#ifndef GRADPOOL_LANE_TABLE_SHARD_H
#define GRADPOOL_LANE_TABLE_SHARD_H

#include "svc/lane/table/index.h"
#include "svc/lane/table/rows.h"

/* Fills in the initial values of a new row, which has zeros or values of a birth that was taken
 * back. The caller's function changes the values alone: moments are zeros, and stay. */
typedef void (*shard_birth_fn)(void *context, uint64_t mixed, void *ret_values);

struct shard_options {
    uint32_t number, shard_bits; /* shard `number` of 2^shard_bits; at most 12 bits */
    struct rows_layout layout;
    uint64_t rows_hint;   /* rows that a copy will bring, 0: unknown; see INDEX_DEPTH_FREE */
    shard_birth_fn birth; /* `context` is lent to the shard */
    void *context;
};

/* The caller reads rows.count, and memory through the allowance. */
struct table_shard {
    struct shard_options options;
    struct table_rows rows;
    struct table_index index;
};

/* Makes an empty shard of one page; `allowance` is lent until table_shard_fini(). Errors of
 * allowance_alloc(); nothing stays allocated. The shard may not move in memory. */
int table_shard_init(struct table_shard *shard, struct allowance *allowance,
                     const struct shard_options *options);
/* Frees the rows. A zeroed shard is fine. */
void table_shard_fini(struct table_shard *shard);

/* Returns whether the mixed key belongs to the shard. */
bool table_shard_has_range(const struct table_shard *shard, uint64_t mixed);

/* Fills in the row of each of `count` keys of the shard; ROWS_NONE: absent. Creates nothing. Cost:
 * one cache miss in the index and one in the rows for a key, several keys at a time; ascending keys
 * are fastest. */
void table_shard_find(const struct table_shard *shard, const uint64_t *mixed, size_t count,
                      uint32_t *ret_rows);

/* The same, and adds the absent rows. Returns the number of births. -EDQUOT, -ENOSPC and other
 * errors of table_rows_add() and table_index_add(): no row is new, and the call may be repeated
 * once there is room. A key may stand twice. */
int64_t table_shard_add(struct table_shard *shard, const uint64_t *mixed, size_t count,
                        uint32_t *ret_rows);

/* Rows of the smallest keys from `from` on, in ascending order, at most `most`. Returns their
 * number; less than `most`: there are no more. The next call starts behind the last key, also after
 * births. */
size_t table_shard_walk(const struct table_shard *shard, uint64_t from, uint32_t *ret_rows,
                        size_t most);

/* Values and moments of a row of this shard. */
static inline void *shard_values(const struct table_shard *shard, uint32_t row)
{
    return rows_at(&shard->rows, row) + shard->options.layout.values_at;
}
static inline float *shard_moments(const struct table_shard *shard, uint32_t row)
{
    return (float *)(void *)(rows_at(&shard->rows, row) + shard->options.layout.moments_at);
}

#endif
