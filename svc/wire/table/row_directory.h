/* The directory of a request for rows (ROWS), in memory that a worker lends and may change at any
 * time. Each use of an entry therefore copies the entry once, and checks the copy. The functions
 * store no state. */
#ifndef GRADPOOL_WIRE_TABLE_ROW_DIRECTORY_H
#define GRADPOOL_WIRE_TABLE_ROW_DIRECTORY_H

#include "svc/wire/table/record_rows.h"

/* A directory in lent memory, and the limits that its entries must not exceed. */
struct row_directory {
    const void *entries; /* `spans` entries, any alignment */
    uint32_t spans;      /* number of entries */
    uint32_t keys;       /* number of keys of the request */
    uint32_t shards;     /* number of shards of the table */
};

/* Copies entry `index`, which must be below `spans`. Checks that the shard exists and that the keys
 * lie in the request. Returns 0, or -EBADMSG if the entry is wrong; `ret_span` is then
 * undefined. */
int row_directory_read(const struct row_directory *directory, uint32_t index,
                       struct row_span *ret_span);

/* Checks that `span` may follow `before` (NULL: none): shards and keys ascend, and no key belongs
 * to two shards. Gaps are allowed, because other lanes have shards, too. */
bool row_span_follows(const struct row_span *span, const struct row_span *before);

/* Reads all entries, and checks each entry with the two functions above. Returns 0, or -EBADMSG;
 * `ret_index` is then the first wrong entry. Cost: linear in the number of entries. */
int row_directory_check(const struct row_directory *directory, uint32_t *ret_index);

/* Finds the entry of a shard by bisection. Returns 0, -ENOENT if there is no entry, or -EBADMSG as
 * row_directory_read(). If the worker has changed the directory since its check, any of these
 * results is possible. */
int row_directory_find(const struct row_directory *directory, uint32_t shard,
                       struct row_span *ret_span);

#endif
