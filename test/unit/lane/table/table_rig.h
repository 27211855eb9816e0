/* Memory for tests of a table. Counts blocks, checks the length of each freed block, and lets the
 * n-th allocation fail. */
#ifndef GRADPOOL_TEST_TABLE_RIG_H
#define GRADPOOL_TEST_TABLE_RIG_H

#include "svc/lane/table/shard.h"
#include "test/lib/extent.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define NEVER SIZE_MAX
#define VALUES 4 /* number of f32 values in a row; a row also has this number of moments */
#define NO_VALUE (-1.0f)

struct rig {
    struct allowance allowance;
    struct table_shard shard;
    size_t blocks, bytes;
    size_t left; /* number of allocations that succeed before one fails; NEVER: none fails */
};

static int rig_alloc(void *context, size_t bytes, void **ret_memory)
{
    struct rig *rig = context;
    if (rig->left == 0)
        return -ENOMEM;
    rig->left -= rig->left != NEVER;
    /* aligned_alloc() needs a multiple of the alignment */
    size_t alignment = bytes >= 4096 ? 4096 : 16;
    void *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    assert_non_null(memory);
    memset(memory, 0, bytes);
    rig->blocks++;
    rig->bytes += bytes;
    *ret_memory = memory;
    return 0;
}

static void rig_free(void *context, void *memory, size_t bytes)
{
    struct rig *rig = context;
    assert_true(rig->blocks > 0 && rig->bytes >= bytes);
    rig->blocks--;
    rig->bytes -= bytes;
    free(memory);
}

/* Returns the initial value of every element: an arbitrary function of the key. */
static inline float rig_initial(uint64_t mixed) { return (float)(mixed % 1000003) + 0.5f; }

static void rig_birth(void *context, uint64_t mixed, void *ret_values)
{
    float *values = ret_values;
    for (int i = 0; i < VALUES; i++)
        values[i] = rig_initial(mixed);
}

static inline void rig_init_memory(struct rig *rig)
{
    *rig = (struct rig){.left = NEVER};
    rig->allowance = (struct allowance){
        .alloc = rig_alloc, .free = rig_free, .context = rig, .limit_bytes = UINT64_MAX};
}

static inline struct shard_options rig_options(uint32_t number, uint32_t shard_bits)
{
    return (struct shard_options){.number = number,
                                  .shard_bits = shard_bits,
                                  .layout = rows_layout(VALUES * sizeof(float), VALUES),
                                  .birth = rig_birth};
}

static inline void rig_init(struct rig *rig, uint32_t number, uint32_t shard_bits)
{
    struct shard_options options = rig_options(number, shard_bits);
    rig_init_memory(rig);
    assert_int_equal(table_shard_init(&rig->shard, &rig->allowance, &options), 0);
}

static inline void rig_fini(struct rig *rig)
{
    table_shard_fini(&rig->shard);
    assert_int_equal(rig->allowance.used_bytes, 0);
    assert_int_equal(rig->blocks, 0);
    assert_int_equal(rig->bytes, 0);
}

static inline bool rig_has(const struct rig *rig, uint64_t mixed)
{
    uint32_t row;
    table_shard_find(&rig->shard, &mixed, 1, &row);
    return row != ROWS_NONE;
}

/* Returns the first value of the row. NO_VALUE: the key is absent. */
static inline float rig_value(const struct rig *rig, uint64_t mixed)
{
    uint32_t row;
    table_shard_find(&rig->shard, &mixed, 1, &row);
    return row == ROWS_NONE ? NO_VALUE : *(float *)shard_values(&rig->shard, row);
}

static inline uint64_t rig_random(void)
{
    return (uint64_t)random() << 42 ^ (uint64_t)random() << 21 ^ (uint64_t)random();
}

static inline int rig_compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static inline int rig_seed(void **state)
{
    const char *text = getenv("GRADPOOL_TEST_SEED");
    unsigned seed = text ? (unsigned)strtoul(text, NULL, 0) : (unsigned)getpid();
    print_message("# GRADPOOL_TEST_SEED=%u\n", seed);
    srandom(seed);
    return 0;
}

#endif
