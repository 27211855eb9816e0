/* The rows of one shard in blocks; a row has a key, values and moments. A row never moves and is
 * never freed alone, so a pointer to a row is valid until table_rows_fini(). The reference of a row
 * is its offset in units of 8 bytes, in 32 bits; a shard has room for 32 GiB of rows.
 *
 * The first block has one page for rows of up to 4,088 bytes. Each further block doubles the memory
 * until 2 MiB; later blocks have 2 MiB each. A small shard therefore uses one page, and a large
 * shard uses huge pages. All functions must run on the lane's thread. */
#ifndef GRADPOOL_LANE_TABLE_ROWS_H
#define GRADPOOL_LANE_TABLE_ROWS_H

#include "svc/lane/table/allowance.h"

#define ROWS_BLOCK_BITS 21
#define ROWS_BLOCK_BYTES (UINT64_C(1) << ROWS_BLOCK_BITS)
#define ROWS_FIRST_BITS_LEAST 12
#define ROWS_BLOCKS_MAX (1 << 14) /* blocks of 2 MiB */
#define ROWS_ROW_BYTES_MAX 49160  /* 4096 values and two moments of each, in f32 */
#define ROWS_NONE 0               /* a reference that no row has */

/* Offsets in a row, in bytes. A row has the mixed key, the values and the moments, in this order;
 * its length is a multiple of 8. */
struct rows_layout {
    uint32_t values_at;  /* after the mixed key of 8 bytes */
    uint32_t moments_at; /* aligned to 4 bytes */
    uint32_t row_bytes;
};

/* Returns the layout of a row with `values_bytes` bytes of values (of any dtype) and `moments` f32
 * moments. The row must have at most ROWS_ROW_BYTES_MAX bytes. */
struct rows_layout rows_layout(uint32_t values_bytes, uint32_t moments);

/* The caller may read `count`; the other fields are for rows.c and the inline functions below. */
struct table_rows {
    struct allowance *allowance;
    uint64_t count; /* rows */
    uint32_t row_bytes;
    uint32_t end;        /* reference after the last row */
    uint32_t first_bits; /* log2 of the length of the first block */
    uint32_t blocks_count, blocks_room;
    char **blocks;
};

/* State of the rows, to which table_rows_reset() returns. */
struct rows_mark {
    uint64_t count;
    uint32_t end;
};

/* Allocates nothing. `allowance` must stay valid until table_rows_fini(). */
void table_rows_init(struct table_rows *rows, struct allowance *allowance, uint32_t row_bytes);
/* Frees all rows. A zeroed struct is allowed. */
void table_rows_fini(struct table_rows *rows);

/* Adds a row with the key `mixed`. All its other bytes are zeros, unless table_rows_reset() has
 * removed a row there. `ret_row`: reference of the row. Returns 0, -ENOSPC if the shard has 32 GiB
 * of rows, or an error of allowance_alloc(); after an error the rows are unchanged. A call
 * allocates a block if the last one is full (table_rows_next_block()). */
int table_rows_add(struct table_rows *rows, uint64_t mixed, uint32_t *ret_row);

struct rows_mark table_rows_mark(const struct table_rows *rows);
/* Removes all rows that were added since `mark`. Their blocks stay allocated. */
void table_rows_reset(struct table_rows *rows, struct rows_mark mark);

/* Returns the length of the next block, so that another thread can prepare its memory. `ret_left`:
 * number of rows that can be added before this block is allocated. */
size_t table_rows_next_block(const struct table_rows *rows, uint64_t *ret_left);

/* Returns the number of the block with this offset. `ret_start`: offset of the block's first
 * byte. */
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

/* Returns the row of a reference from table_rows_add(). */
static inline char *rows_at(const struct table_rows *rows, uint32_t row)
{
    uint64_t offset = (uint64_t)row * 8, start;
    uint32_t block = rows_block_of(rows, offset, &start);
    return rows->blocks[block] + (offset - start);
}

static inline uint64_t rows_key(const struct table_rows *rows, uint32_t row)
{
    return *(const uint64_t *)rows_at(rows, row);
}

#endif
