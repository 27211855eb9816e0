/* The memory of a request to a table, as lanes read it (ROWS), and the record for each lane. All
 * lanes share the keys and rows; each lane has its own run of the directory. The caller lends the
 * memory and sends the records. */
#ifndef GRADPOOL_CLIENT_TABLE_REQUEST_H
#define GRADPOOL_CLIENT_TABLE_REQUEST_H

#include "client/lib/table/keys.h"
#include "client/lib/table/route.h"
#include "svc/reduce/reduce.h"
#include "svc/wire/record.h"

/* Lent memory for one request, and its place among the lent regions. */
struct request_memory {
    char *base;      /* aligned to 8 bytes */
    uint64_t offset; /* offset of `base` in the region; a multiple of 8 */
    uint32_t region;
    size_t bytes;
};

/* The consecutive entries of one lane in the directory. */
struct request_part {
    uint32_t lane;
    uint32_t number;       /* number of the table on the lane (table_route_number()) */
    uint32_t first, spans; /* entries of the directory */
    uint32_t keys;         /* number of keys in these entries */
};

/* A request that was laid out. `parts` belongs to the caller. */
struct table_request {
    struct request_memory memory;
    enum reduce_dtype dtype;
    uint32_t dim, keys;
    uint64_t keys_at, rows_at; /* offsets of keys and rows from memory.base, in bytes */
    struct request_part *parts;
    uint32_t parts_count;
};

/* Returns the length of memory that suffices for a request with `keys` distinct keys in any
 * shards. */
size_t table_request_bytes(uint32_t keys, uint32_t shards, enum reduce_dtype dtype, uint32_t dim);

/* Writes directory and keys, and decides the place of the rows, which the caller fills in for a
 * push (table_fold()). `keys` has at least one key. `spans` is scratch memory, one element for each
 * shard of the route; `parts` has one element for each lane of the route. -ENOSPC: the memory is
 * too short; nothing was written. */
int table_request_lay(const struct table_keys *keys, const struct table_route *route,
                      enum reduce_dtype dtype, uint32_t dim, const struct request_memory *memory,
                      struct table_span *spans, struct request_part *parts,
                      struct table_request *ret_request);

/* Returns the rows of the distinct keys, in order. */
static inline void *table_request_rows(const struct table_request *request)
{
    return request->memory.base + request->rows_at;
}

/* Returns the record for the lane of a part. */
struct record_rows table_request_record(const struct table_request *request,
                                        const struct request_part *part,
                                        enum record_rows_operation operation, uint32_t table,
                                        uint32_t word, uint64_t clock, uint64_t sequence);

#endif
