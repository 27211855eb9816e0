/* Lays out requests to tables. Directory, keys and rows each begin at a multiple of 64 bytes, and
 * share no cache line. */
#include "client/lib/table/request.h"

#include <errno.h>
#include <string.h>

#define LINE_BYTES 64u

static size_t request_line_up(size_t bytes)
{
    return (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

static size_t directory_bytes(uint32_t keys, uint32_t shards)
{
    return request_line_up((keys < shards ? keys : shards) * sizeof(struct row_span));
}

size_t table_request_bytes(uint32_t keys, uint32_t shards, enum reduce_dtype dtype, uint32_t dim)
{
    size_t row_bytes = dim * reduce_element_bytes(dtype);
    return directory_bytes(keys, shards) + request_line_up(keys * sizeof(uint64_t)) +
           request_line_up(keys * row_bytes);
}

/* Counts the spans and keys of each lane, and assigns each lane its run of the directory. A lane
 * without a span gets a run of 0 entries. */
static void request_count(const struct table_route *route, const struct table_span *spans,
                          uint32_t count, struct request_part *parts)
{
    for (uint32_t i = 0; i < route->lanes_count; i++)
        parts[i] =
            (struct request_part){.lane = route->lanes[i], .number = table_route_number(route, i)};
    for (uint32_t i = 0; i < count; i++) {
        struct request_part *part = &parts[route->shards[spans[i].shard].place];
        part->spans++;
        part->keys += spans[i].count;
    }
    for (uint32_t i = 0, first = 0; i < route->lanes_count; first += parts[i++].spans)
        parts[i].first = first;
}

/* Writes the entries in the order of (lane, shard). */
static void request_write_directory(const struct table_route *route, const struct table_span *spans,
                                    uint32_t count, struct request_part *parts, char *ret_entries)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct shard_route *shard = &route->shards[spans[i].shard];
        struct row_span span = {.shard = spans[i].shard,
                                .epoch = shard->epoch,
                                .first = spans[i].first,
                                .count = spans[i].count};
        struct request_part *part = &parts[shard->place];
        memcpy(ret_entries + part->first++ * sizeof span, &span, sizeof span);
    }
    for (uint32_t i = 0; i < route->lanes_count; i++)
        parts[i].first -= parts[i].spans;
}

/* Moves the parts of lanes that have keys to the front. Returns the number of these parts. */
static uint32_t request_drop_empty(struct request_part *parts, uint32_t count)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (parts[i].spans > 0)
            parts[kept++] = parts[i];
    return kept;
}

int table_request_lay(const struct table_keys *keys, const struct table_route *route,
                      enum reduce_dtype dtype, uint32_t dim, const struct request_memory *memory,
                      struct table_span *spans, struct request_part *parts,
                      struct table_request *ret_request)
{
    uint32_t shards = table_route_shards(route);
    if (memory->bytes < table_request_bytes(keys->count, shards, dtype, dim))
        return -ENOSPC;
    struct table_request request = {.memory = *memory,
                                    .dtype = dtype,
                                    .dim = dim,
                                    .keys = keys->count,
                                    .keys_at = directory_bytes(keys->count, shards),
                                    .parts = parts};
    request.rows_at = request.keys_at + request_line_up(keys->count * sizeof(uint64_t));
    uint32_t count = table_keys_spans(keys, route->shard_bits, spans);
    request_count(route, spans, count, parts);
    request_write_directory(route, spans, count, parts, memory->base);
    memcpy(memory->base + request.keys_at, keys->mixed, keys->count * sizeof *keys->mixed);
    request.parts_count = request_drop_empty(parts, route->lanes_count);
    *ret_request = request;
    return 0;
}

struct record_rows table_request_record(const struct table_request *request,
                                        const struct request_part *part,
                                        enum record_rows_operation operation, uint32_t table,
                                        uint32_t word, uint64_t clock, uint64_t sequence)
{
    const struct request_memory *memory = &request->memory;
    return (struct record_rows){.kind = RECORD_ROWS,
                                .operation = (uint8_t)operation,
                                .dtype = (uint8_t)request->dtype,
                                .table = table,
                                .word = word,
                                .dim = request->dim,
                                .clock = clock,
                                .sequence = sequence,
                                .spans = part->spans,
                                .keys = request->keys,
                                .directory_region = memory->region,
                                .keys_region = memory->region,
                                .rows_region = memory->region,
                                .directory_offset =
                                    memory->offset + part->first * sizeof(struct row_span),
                                .keys_offset = memory->offset + request->keys_at,
                                .rows_offset = memory->offset + request->rows_at};
}
