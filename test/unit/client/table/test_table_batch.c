/* Tests batches that are longer than a request. The blocks of a batch cover all keys in order, and
 * the requests of the blocks are adjacent in memory. Gradients of duplicate keys are summed within
 * a block. Every position of the batch gets its row. */
#include "client/lib/table/batch.h"
#include "svc/wire/mixed_key.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SHARDS 4
#define SALT UINT64_C(99)
#define OFFSET 8192

static size_t left = SIZE_MAX; /* number of allocations that succeed before one fails */
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);

void *__wrap_calloc(size_t count, size_t bytes)
{
    if (left == 0)
        return NULL;
    left -= left != SIZE_MAX;
    return __real_calloc(count, bytes);
}

static struct shard_route shards[SHARDS] = {{.lane = 7, .epoch = 1},
                                            {.lane = 9, .epoch = 1, .place = 1},
                                            {.lane = 7, .epoch = 1},
                                            {.lane = 9, .epoch = 1, .place = 1}};
static uint32_t lanes[] = {7, 9};
static const struct table_route route = {
    .salt = SALT, .shard_bits = 2, .shards = shards, .lanes = lanes, .lanes_count = 2};

/* A batch with its requests. */
struct sample {
    struct table_batch batch;
    struct table_request requests[3];
    struct request_part parts[3 * 2];
    struct request_memory memory;
};

static void lay(struct sample *s, const uint64_t *keys, size_t count)
{
    struct table_span spans[SHARDS];
    size_t wrong;
    assert_int_equal(table_batch_set(&s->batch, keys, count, 0, SALT, &wrong), 0);
    size_t bytes = table_batch_bytes(&s->batch, SHARDS, REDUCE_F32, 1);
    s->memory = (struct request_memory){malloc(bytes + 1), OFFSET, 3, bytes};
    assert_int_equal(
        table_batch_lay(&s->batch, &route, REDUCE_F32, 1, &s->memory, spans, s->parts, s->requests),
        0);
}

static void sample_fini(struct sample *s)
{
    table_batch_fini(&s->batch);
    free(s->memory.base);
}

/* Returns `count` keys. Each key occurs twice, at the same distance from the start and from the end
 * of the batch. */
static uint64_t *twice(size_t count)
{
    uint64_t *keys = calloc(count, sizeof *keys);
    for (size_t i = 0; i < count; i++)
        keys[i] = i < count - 1 - i ? i : count - 1 - i;
    return keys;
}

static void requests_follow_each_other(const struct sample *s)
{
    uint64_t at = OFFSET;
    for (uint32_t i = 0; i < s->batch.blocks_count; i++) {
        const struct table_request *r = &s->requests[i];
        assert_int_equal(r->memory.offset, at);
        assert_ptr_equal(r->memory.base, s->memory.base + (at - OFFSET));
        assert_ptr_equal(r->parts, &s->parts[2 * i]);
        at += table_request_bytes(r->keys, SHARDS, REDUCE_F32, 1);
    }
    assert_int_equal(at, OFFSET + s->memory.bytes);
}

static void a_long_batch_is_cut_into_requests(void **state)
{
    const size_t count = 2 * (size_t)TABLE_KEYS_MAX + 10;
    uint64_t *keys = twice(count);
    float *gradients = calloc(count, sizeof *gradients), *rows = calloc(count, sizeof *rows);
    struct sample s = {0};
    lay(&s, keys, count);
    assert_int_equal(s.batch.blocks_count, 3);
    assert_int_equal(s.batch.blocks[2].keys.positions, 10);
    requests_follow_each_other(&s);
    for (size_t i = 0; i < count; i++)
        gradients[i] = (float)(i % 1000);
    table_batch_fold(&s.batch, s.requests, gradients);
    table_batch_spread(&s.batch, s.requests, rows);
    for (size_t i = 0; i < count; i++) {
        size_t other = count - 1 - i;
        bool is_same = i / TABLE_KEYS_MAX == other / TABLE_KEYS_MAX;
        assert_float_equal(rows[i], gradients[i] + (is_same ? gradients[other] : 0), 0);
    }
    sample_fini(&s);
    free(keys);
    free(gradients);
    free(rows);
}

static void a_batch_without_keys_has_no_request(void **state)
{
    struct sample s = {0};
    lay(&s, NULL, 0);
    assert_int_equal(s.batch.blocks_count, 0);
    assert_int_equal(s.memory.bytes, 0);
    table_batch_fold(&s.batch, s.requests, NULL);
    table_batch_spread(&s.batch, s.requests, NULL);
    sample_fini(&s);
}

static void a_key_beyond_the_bound_is_named_by_its_position(void **state)
{
    const size_t count = (size_t)TABLE_KEYS_MAX + 10;
    uint64_t *keys = calloc(count, sizeof *keys);
    struct table_batch batch = {0};
    size_t wrong = 0;
    keys[count - 3] = 1000;
    assert_int_equal(table_batch_set(&batch, keys, count, 1000, SALT, &wrong), -EINVAL);
    assert_int_equal(wrong, count - 3);
    assert_int_equal(batch.blocks_count, 0);
    assert_int_equal(table_batch_set(&batch, keys, count, 1001, SALT, &wrong), 0);
    assert_int_equal(batch.blocks_count, 2);
    table_batch_fini(&batch);
    free(keys);
}

static void a_batch_may_be_set_again(void **state)
{
    const uint64_t first[] = {1, 2, 3}, second[] = {9};
    struct table_batch batch = {0};
    size_t wrong;
    assert_int_equal(table_batch_set(&batch, first, 3, 0, SALT, &wrong), 0);
    assert_int_equal(table_batch_set(&batch, second, 1, 0, SALT, &wrong), 0);
    assert_int_equal(batch.positions, 1);
    assert_int_equal(batch.blocks[0].keys.count, 1);
    assert_int_equal(batch.blocks[0].keys.mixed[0], mixed_key(9, SALT));
    table_batch_fini(&batch);
}

static void memory_that_is_too_short_is_refused(void **state)
{
    const uint64_t keys[] = {1, 2, 3};
    struct table_span spans[SHARDS];
    struct sample s = {0};
    lay(&s, keys, 3);
    s.memory.bytes--;
    assert_int_equal(
        table_batch_lay(&s.batch, &route, REDUCE_F32, 1, &s.memory, spans, s.parts, s.requests),
        -ENOSPC);
    sample_fini(&s);
}

static void the_nth_allocation_fails(void **state)
{
    const size_t count = (size_t)TABLE_KEYS_MAX + 1;
    uint64_t *keys = calloc(count, sizeof *keys);
    struct table_batch batch = {0};
    int error = -ENOMEM;
    size_t wrong, n = 0;
    for (; error == -ENOMEM; n++) {
        left = n;
        error = table_batch_set(&batch, keys, count, 0, SALT, &wrong);
        left = SIZE_MAX;
        if (error == -ENOMEM)
            assert_true(batch.blocks == NULL && batch.positions == 0);
    }
    assert_int_equal(error, 0);
    assert_true(n > 2);
    table_batch_fini(&batch);
    free(keys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_batch_is_cut_into_requests),
        cmocka_unit_test(a_batch_without_keys_has_no_request),
        cmocka_unit_test(a_key_beyond_the_bound_is_named_by_its_position),
        cmocka_unit_test(a_batch_may_be_set_again),
        cmocka_unit_test(memory_that_is_too_short_is_refused),
        cmocka_unit_test(the_nth_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
