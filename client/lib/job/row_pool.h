/* Lent memory for the calls of tables. Memory of an ended call is used again by later calls of
 * about the same length. Called with the job's lock held. */
#ifndef GRADPOOL_CLIENT_LIB_JOB_ROW_POOL_H
#define GRADPOOL_CLIENT_LIB_JOB_ROW_POOL_H

#include "svc/fabric/slab.h"

/* Memory for directories, keys and rows of one call. */
struct row_memory {
    struct list node; /* node in row_pool.spare */
    void *base;
    size_t bytes;
    struct slab_place place;
};

struct row_pool {
    struct slabs *slabs; /* slabs of the job */
    struct list spare;   /* row_memory.node */
    uint64_t used_bytes, used_most_bytes, spare_bytes;
};

void row_pool_init(struct row_pool *pool, struct slabs *slabs);
void row_pool_fini(struct row_pool *pool);
/* Returns the length to allocate for a call that needs `bytes`. */
size_t row_pool_length(size_t bytes);
/* Returns spare memory of this length, which is then in use. NULL: there is no such memory. */
struct row_memory *row_pool_take(struct row_pool *pool, size_t length);
/* Adds new memory of the slabs, and takes the memory into use. -ENOMEM. */
int row_pool_add(struct row_pool *pool, void *base, size_t length, struct row_memory **ret_memory);
/* Ends the use of memory, which becomes spare memory. The pool keeps at most as much spare memory
 * as was in use at one time, or SPARE_BYTES_MIN, and frees the rest. */
void row_pool_put(struct row_pool *pool, struct row_memory *memory);

#endif
