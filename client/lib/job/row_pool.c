/* Owns the spare memory of ended calls. New pages cost more than the copy of their bytes, so memory
 * is kept rather than freed. */
#include "client/lib/job/row_pool.h"

#include <errno.h>
#include <stdlib.h>

#define PAGE_BYTES 4096u
#define SPARE_BYTES_MIN ((size_t)64 << 20) /* spare memory that is always allowed */

void row_pool_init(struct row_pool *pool, struct slabs *slabs)
{
    *pool = (struct row_pool){.slabs = slabs};
    list_init(&pool->spare);
}

void row_pool_fini(struct row_pool *pool)
{
    list_for_each_safe_entry (struct row_memory, memory, &pool->spare, node)
        free(memory);
}

/* Rounds up to one of four lengths between two powers of two, so that batches of similar length use
 * the same memory. */
size_t row_pool_length(size_t bytes)
{
    size_t power = PAGE_BYTES;
    while (power <= bytes / 2)
        power *= 2;
    size_t step = power / 4 > PAGE_BYTES ? power / 4 : PAGE_BYTES;
    return (bytes + step - 1) / step * step;
}

static void row_pool_use(struct row_pool *pool, const struct row_memory *memory)
{
    pool->used_bytes += memory->bytes;
    if (pool->used_bytes > pool->used_most_bytes)
        pool->used_most_bytes = pool->used_bytes;
}

struct row_memory *row_pool_take(struct row_pool *pool, size_t length)
{
    list_for_each_entry (struct row_memory, memory, &pool->spare, node) {
        if (memory->bytes != length)
            continue;
        list_remove(&memory->node);
        pool->spare_bytes -= length;
        row_pool_use(pool, memory);
        return memory;
    }
    return NULL;
}

int row_pool_add(struct row_pool *pool, void *base, size_t length, struct row_memory **ret_memory)
{
    struct row_memory *memory = calloc(1, sizeof *memory);
    if (!memory || !slabs_find(pool->slabs, base, length, &memory->place)) {
        free(memory);
        return -ENOMEM;
    }
    memory->base = base;
    memory->bytes = length;
    list_init(&memory->node);
    row_pool_use(pool, memory);
    *ret_memory = memory;
    return 0;
}

void row_pool_put(struct row_pool *pool, struct row_memory *memory)
{
    uint64_t most =
        pool->used_most_bytes > SPARE_BYTES_MIN ? pool->used_most_bytes : SPARE_BYTES_MIN;
    pool->used_bytes -= memory->bytes;
    if (pool->spare_bytes + memory->bytes > most) {
        (void)slabs_free(pool->slabs, memory->base);
        free(memory);
        return;
    }
    pool->spare_bytes += memory->bytes;
    list_prepend(&pool->spare, &memory->node);
}
