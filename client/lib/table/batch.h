/* The keys of a batch, in blocks of at most TABLE_KEYS_MAX keys. Each block needs one request. A
 * batch may be pulled and pushed many times. */
#ifndef GRADPOOL_CLIENT_TABLE_BATCH_H
#define GRADPOOL_CLIENT_TABLE_BATCH_H

#include "client/lib/table/fold.h"
#include "client/lib/table/request.h"

/* Block with `keys.positions` keys of the caller, from position `first` on. */
struct table_block {
    struct table_keys keys;
    size_t first;
};

/* A zeroed batch is empty. */
struct table_batch {
    struct table_block *blocks;
    uint32_t blocks_count; /* 0 for a batch without keys */
    size_t positions;      /* number of keys of the caller */
};

/* Copies and sorts the keys of the caller; the former keys of the batch are freed. `bound` and
 * errors as for table_keys_set(), without -E2BIG; `ret_wrong`: position among all keys. -ENOMEM
 * also for 2^32 or more blocks. After an error the batch is empty. */
int table_batch_set(struct table_batch *batch, const uint64_t *keys, size_t count, uint64_t bound,
                    uint64_t salt, size_t *ret_wrong);
void table_batch_fini(struct table_batch *batch);

/* Returns the length of the lent memory that the requests of all blocks need. */
size_t table_batch_bytes(const struct table_batch *batch, uint32_t shards, enum reduce_dtype dtype,
                         uint32_t dim);
/* Lays out the requests of all blocks, one after the other in memory. `ret_requests` has one
 * element for each block; `parts` has, for each block, one element for each lane of the route.
 * Other parameters and errors: table_request_lay(). */
int table_batch_lay(const struct table_batch *batch, const struct table_route *route,
                    enum reduce_dtype dtype, uint32_t dim, const struct request_memory *memory,
                    struct table_span *spans, struct request_part *parts,
                    struct table_request *ret_requests);
/* Folds the gradients of all positions into the requests' rows. */
void table_batch_fold(const struct table_batch *batch, const struct table_request *requests,
                      const void *gradients);
/* Copies the requests' rows to all positions. */
void table_batch_spread(const struct table_batch *batch, const struct table_request *requests,
                        void *ret_rows);

#endif
