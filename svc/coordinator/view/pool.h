/* Memory of one reply, which is freed as a whole. */
#ifndef GRADPOOL_COORDINATOR_VIEW_POOL_H
#define GRADPOOL_COORDINATOR_VIEW_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

struct pool_block {
    struct pool_block *next;
    max_align_t memory[];
};

struct pool {
    struct pool_block *blocks;
    bool failed;
};

/* Returns zeroed memory, or NULL if memory is missing; `failed` is then set. */
static inline void *pool_take(struct pool *pool, size_t bytes)
{
    struct pool_block *block = calloc(1, sizeof *block + bytes);
    if (!block) {
        pool->failed = true;
        return NULL;
    }
    block->next = pool->blocks;
    pool->blocks = block;
    return block->memory;
}

static inline void pool_free(struct pool *pool)
{
    while (pool->blocks) {
        struct pool_block *next = pool->blocks->next;
        free(pool->blocks);
        pool->blocks = next;
    }
}

#endif
