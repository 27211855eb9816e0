/* The rows of one shard: a key and the bytes behind the key, in blocks. A row never moves and is
 * never freed alone, so a pointer to a row holds until table_rows_fini(). Rows are known by a
 * reference of 32 bits: offset in units of 8 bytes, 32 GiB of rows a shard.
 *
 * The first blocks are short and double, 2 MiB in sum; each further block has 2 MiB. So a shard of
 * a few rows takes one page, and a large one has huge pages. Thread: the lane's. */
#ifndef GRADPOOL_LANE_TABLE_ROWS_H
#define GRADPOOL_LANE_TABLE_ROWS_H

#include "svc/lane/table/allowance.h"

#define ROWS_BLOCK_BITS 21
#define ROWS_BLOCK_BYTES (UINT64_C(1) << ROWS_BLOCK_BITS)
#define ROWS_FIRST_BITS_LEAST 12
#define ROWS_BLOCKS_MAX (1 << 14) /* blocks of 2 MiB */
#define ROWS_ROW_BYTES_MAX 49160  /* 4096 values and two moments of each, in f32 */
#define ROWS_NONE 0               /* reference of no row */

/* Places in a row, in bytes. Key, values, moments; the row's length is a multiple of 8. */
struct rows_layout {
    uint32_t values_at;  /* behind the mixed key of 8 bytes */
    uint32_t moments_at; /* aligned to 4 bytes */
    uint32_t row_bytes;
};

/* Layout of `values_bytes` of values (any dtype) and `moments` f32 moments, together at most
 * ROWS_ROW_BYTES_MAX with the key. */
struct rows_layout rows_layout(uint32_t values_bytes, uint32_t moments);

/* The caller reads the counters; all else is for rows.c and the inline functions below. */
struct table_rows {
    struct allowance *allowance;
    uint64_t count; /* rows */
    uint32_t row_bytes;
    uint32_t end;        /* reference behind the last row */
    uint32_t first_bits; /* log2 of the length of the first block */
    uint32_t blocks_count, blocks_room;
    char **blocks;
};

/* State to which table_rows_reset() returns. */
struct rows_mark {
    uint64_t count;
    uint32_t end;
};

/* Allocates nothing. `allowance` is lent until table_rows_fini(). */
void table_rows_init(struct table_rows *rows, struct allowance *allowance, uint32_t row_bytes);
/* Frees all rows. Zeroed `rows` are fine. */
void table_rows_fini(struct table_rows *rows);

/* Makes a row with the key `mixed`; all its other bytes are zeros, unless a reset row had the
 * place. Returns its reference through `ret_row`. -ENOSPC: the shard has 32 GiB of rows; -EDQUOT
 * and others: allowance_alloc(). An error leaves the rows as they are. Cost: a block's allocation
 * now and then, see table_rows_next_block(). */
int table_rows_add(struct table_rows *rows, uint64_t mixed, uint32_t *ret_row);

struct rows_mark table_rows_mark(const struct table_rows *rows);
/* Takes back all rows that were made since `mark`. Blocks stay allocated. */
void table_rows_reset(struct table_rows *rows, struct rows_mark mark);

/* Length of the block that comes next, so that another thread can prepare it; `ret_left`: rows that
 * fit before. */
size_t table_rows_next_block(const struct table_rows *rows, uint64_t *ret_left);

/* Number of a block, and its first byte in the shard's address space of rows. */
static inline uint32_t rows_block_of(const struct table_rows *rows, uint64_t offset,
                                     uint64_t *ret_start)
{
    uint32_t short_blocks = ROWS_BLOCK_BITS - rows->first_bits;
    if (offset >> ROWS_BLOCK_BITS) {
        *ret_start = offset >> ROWS_BLOCK_BITS << ROWS_BLOCK_BITS;
        return short_blocks + (uint32_t)(offset >> ROWS_BLOCK_BITS);
    }
    uint64_t firsts = offset >> rows->first_bits;
    uint32_t block = firsts ? 64 - (uint32_t)__builtin_clzll(firsts) : 0;
    *ret_start = block ? UINT64_C(1) << (rows->first_bits + block - 1) : 0;
    return block;
}

/* The row of a reference of table_rows_add(). */
static inline char *rows_at(const struct table_rows *rows, uint32_t row)
{
    uint64_t offset = (uint64_t)row * 8, start;
    uint32_t block = rows_block_of(rows, offset, &start);
    return rows->blocks[block] + (offset - start);
}

/* The mixed key of a row. */
static inline uint64_t rows_key(const struct table_rows *rows, uint32_t row)
{
    return *(const uint64_t *)rows_at(rows, row);
}

#endif
