/* Row memory of one shard, in blocks that never move. Owns the blocks and their list. */
#include "svc/lane/table/rows.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define ROWS_LIST_LEAST 8 /* number of entries of the first list of blocks */

static uint32_t rows_rounded(uint32_t bytes, uint32_t unit) { return (bytes + unit - 1) & -unit; }

struct rows_layout rows_layout(uint32_t values_bytes, uint32_t moments)
{
    uint32_t moments_at = rows_rounded(sizeof(uint64_t) + values_bytes, sizeof(float));
    return (struct rows_layout){
        .values_at = sizeof(uint64_t),
        .moments_at = moments_at,
        .row_bytes = rows_rounded(moments_at + moments * (uint32_t)sizeof(float), 8)};
}

/* Rows begin after the first 8 bytes of the first block, because a row at offset 0 would have the
 * reference ROWS_NONE. */
void table_rows_init(struct table_rows *rows, struct allowance *allowance, uint32_t row_bytes)
{
    uint32_t first_bits = ROWS_FIRST_BITS_LEAST;
    assert(row_bytes >= 8 && row_bytes % 8 == 0 && row_bytes <= ROWS_ROW_BYTES_MAX);
    while (UINT64_C(1) << first_bits < row_bytes + 8)
        first_bits++;
    *rows = (struct table_rows){
        .allowance = allowance, .row_bytes = row_bytes, .end = 1, .first_bits = first_bits};
}

static size_t rows_block_bytes(const struct table_rows *rows, uint32_t block)
{
    uint32_t bits = rows->first_bits + (block ? block - 1 : 0);
    return (size_t)1 << (bits < ROWS_BLOCK_BITS ? bits : ROWS_BLOCK_BITS);
}

void table_rows_fini(struct table_rows *rows)
{
    for (uint32_t block = 0; block < rows->blocks_count; block++)
        allowance_free(rows->allowance, rows->blocks[block], rows_block_bytes(rows, block));
    if (rows->blocks)
        allowance_free(rows->allowance, rows->blocks, rows->blocks_room * sizeof *rows->blocks);
    *rows = (struct table_rows){.allowance = rows->allowance};
}

static int rows_grow_list(struct table_rows *rows)
{
    uint32_t room = rows->blocks_room ? 2 * rows->blocks_room : ROWS_LIST_LEAST;
    void *blocks;
    if (rows->blocks_count < rows->blocks_room)
        return 0;
    int error = allowance_alloc(rows->allowance, room * sizeof *rows->blocks, &blocks);
    if (error < 0)
        return error;
    if (rows->blocks) {
        memcpy(blocks, rows->blocks, rows->blocks_count * sizeof *rows->blocks);
        allowance_free(rows->allowance, rows->blocks, rows->blocks_room * sizeof *rows->blocks);
    }
    rows->blocks = blocks;
    rows->blocks_room = room;
    return 0;
}

static int rows_add_block(struct table_rows *rows)
{
    void *block;
    if (rows->blocks_count >= ROWS_BLOCKS_MAX)
        return -ENOSPC;
    int error = rows_grow_list(rows);
    if (error == 0)
        error =
            allowance_alloc(rows->allowance, rows_block_bytes(rows, rows->blocks_count), &block);
    if (error < 0)
        return error;
    rows->blocks[rows->blocks_count++] = block;
    return 0;
}

/* Returns the offset of the next row: `end`, or the start of the next block if the rest of this
 * block is too short. */
static uint64_t rows_next_place(const struct table_rows *rows, uint32_t *ret_block)
{
    uint64_t offset = (uint64_t)rows->end * 8, start;
    uint32_t block = rows_block_of(rows, offset, &start);
    if (offset + rows->row_bytes > start + rows_block_bytes(rows, block)) {
        offset = start + rows_block_bytes(rows, block);
        block++;
    }
    *ret_block = block;
    return offset;
}

int table_rows_add(struct table_rows *rows, uint64_t mixed, uint32_t *ret_row)
{
    uint32_t block;
    uint64_t offset = rows_next_place(rows, &block);
    int error = block < rows->blocks_count ? 0 : rows_add_block(rows);
    if (error < 0)
        return error;
    uint32_t row = (uint32_t)(offset / 8);
    *(uint64_t *)rows_at(rows, row) = mixed;
    rows->end = row + rows->row_bytes / 8;
    rows->count++;
    *ret_row = row;
    return 0;
}

struct rows_mark table_rows_mark(const struct table_rows *rows)
{
    return (struct rows_mark){rows->count, rows->end};
}

void table_rows_reset(struct table_rows *rows, struct rows_mark mark)
{
    assert(mark.count <= rows->count && mark.end <= rows->end);
    rows->count = mark.count;
    rows->end = mark.end;
}

size_t table_rows_next_block(const struct table_rows *rows, uint64_t *ret_left)
{
    uint32_t block;
    uint64_t offset = rows_next_place(rows, &block), left = 0;
    for (; block < rows->blocks_count; block++, offset = 0) {
        uint64_t start = 0;
        if (offset)
            rows_block_of(rows, offset, &start);
        left += (rows_block_bytes(rows, block) - (offset ? offset - start : 0)) / rows->row_bytes;
    }
    *ret_left = left;
    return rows_block_bytes(rows, rows->blocks_count);
}
