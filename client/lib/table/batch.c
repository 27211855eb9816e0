/* Cuts the keys of a batch into blocks. */
#include "client/lib/table/batch.h"

#include <errno.h>
#include <stdlib.h>

static size_t block_row_bytes(const struct table_request *request)
{
    return request->dim * reduce_element_bytes(request->dtype);
}

static int block_set(struct table_block *block, const uint64_t *keys, size_t count, uint64_t bound,
                     uint64_t salt, size_t *ret_wrong)
{
    size_t left = count - block->first, wrong;
    size_t most = left < TABLE_KEYS_MAX ? left : TABLE_KEYS_MAX;
    int error = table_keys_set(&block->keys, keys + block->first, most, bound, salt, &wrong);
    if (error == -EINVAL)
        *ret_wrong = block->first + wrong;
    return error;
}

int table_batch_set(struct table_batch *batch, const uint64_t *keys, size_t count, uint64_t bound,
                    uint64_t salt, size_t *ret_wrong)
{
    size_t blocks = count / TABLE_KEYS_MAX + (count % TABLE_KEYS_MAX > 0);
    table_batch_fini(batch);
    batch->blocks = blocks <= UINT32_MAX ? calloc(blocks + 1, sizeof *batch->blocks) : NULL;
    if (!batch->blocks)
        return -ENOMEM;
    batch->positions = count;
    int error = 0;
    for (size_t i = 0; error == 0 && i < blocks; i++) {
        batch->blocks[i].first = i * TABLE_KEYS_MAX;
        batch->blocks_count++;
        error = block_set(&batch->blocks[i], keys, count, bound, salt, ret_wrong);
    }
    if (error < 0)
        table_batch_fini(batch);
    return error;
}

void table_batch_fini(struct table_batch *batch)
{
    for (uint32_t i = 0; i < batch->blocks_count; i++)
        table_keys_fini(&batch->blocks[i].keys);
    free(batch->blocks);
    *batch = (struct table_batch){0};
}

size_t table_batch_bytes(const struct table_batch *batch, uint32_t shards, enum reduce_dtype dtype,
                         uint32_t dim)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < batch->blocks_count; i++)
        bytes += table_request_bytes(batch->blocks[i].keys.count, shards, dtype, dim);
    return bytes;
}

int table_batch_lay(const struct table_batch *batch, const struct table_route *route,
                    enum reduce_dtype dtype, uint32_t dim, const struct request_memory *memory,
                    struct table_span *spans, struct request_part *parts,
                    struct table_request *ret_requests)
{
    struct request_memory rest = *memory;
    uint32_t shards = table_route_shards(route);
    if (memory->bytes < table_batch_bytes(batch, shards, dtype, dim))
        return -ENOSPC;
    for (uint32_t i = 0; i < batch->blocks_count; i++) {
        const struct table_keys *keys = &batch->blocks[i].keys;
        size_t bytes = table_request_bytes(keys->count, shards, dtype, dim);
        int error = table_request_lay(keys, route, dtype, dim, &rest, spans,
                                      parts + (size_t)i * route->lanes_count, &ret_requests[i]);
        if (error < 0)
            return error;
        rest.base += bytes;
        rest.offset += bytes;
        rest.bytes -= bytes;
    }
    return 0;
}

void table_batch_fold(const struct table_batch *batch, const struct table_request *requests,
                      const void *gradients)
{
    for (uint32_t i = 0; i < batch->blocks_count; i++) {
        const struct table_block *block = &batch->blocks[i];
        size_t at = block->first * block_row_bytes(&requests[i]);
        table_fold(&block->keys, requests[i].dtype, requests[i].dim, (const char *)gradients + at,
                   table_request_rows(&requests[i]));
    }
}

void table_batch_spread(const struct table_batch *batch, const struct table_request *requests,
                        void *ret_rows)
{
    for (uint32_t i = 0; i < batch->blocks_count; i++) {
        const struct table_block *block = &batch->blocks[i];
        size_t row_bytes = block_row_bytes(&requests[i]);
        table_spread(&block->keys, row_bytes, table_request_rows(&requests[i]),
                     (char *)ret_rows + block->first * row_bytes);
    }
}
