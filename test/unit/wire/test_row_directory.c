/* Tests directories of requests for rows. Valid spans are accepted and found. A wrong count, shard
 * or order is refused, even if the memory changes after the check. */
#include "svc/wire/table/row_directory.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KEYS 10u
#define SHARDS 64u

static int check(const struct row_span *spans, uint32_t count, uint32_t *ret_index)
{
    struct row_directory directory = {spans, count, KEYS, SHARDS};
    return row_directory_check(&directory, ret_index);
}

static void refuses(struct row_span first, struct row_span second, uint32_t wrong)
{
    const struct row_span spans[] = {first, second};
    uint32_t index = UINT32_MAX;
    assert_int_equal(check(spans, 2, &index), -EBADMSG);
    assert_int_equal(index, wrong);
}

static void accepts(struct row_span first, struct row_span second)
{
    const struct row_span spans[] = {first, second};
    uint32_t index = UINT32_MAX;
    assert_int_equal(check(spans, 2, &index), 0);
    assert_int_equal(index, UINT32_MAX);
}

static void spans_that_ascend_pass_with_gaps_and_without(void **state)
{
    accepts((struct row_span){3, 1, 0, 4}, (struct row_span){9, 1, 4, 6});
    accepts((struct row_span){0, 2, 1, 1}, (struct row_span){63, UINT32_MAX, 9, 1});
    assert_int_equal(check(NULL, 0, NULL), 0);
}

static void a_wrong_entry_is_named(void **state)
{
    const struct row_span good = {3, 1, 0, 4};
    refuses((struct row_span){SHARDS, 1, 0, 4}, good, 0);
    refuses((struct row_span){3, 1, 0, 0}, good, 0);
    refuses((struct row_span){3, 1, 0, KEYS + 1}, good, 0);
    refuses((struct row_span){3, 1, KEYS, 1}, good, 0);
    refuses((struct row_span){3, 1, UINT32_MAX, 1}, good, 0);
    refuses((struct row_span){3, 1, 1, UINT32_MAX}, good, 0);
    refuses(good, (struct row_span){9, 1, 4, KEYS - 4 + 1}, 1);
    refuses(good, (struct row_span){3, 1, 4, 1}, 1); /* the same shard twice */
    refuses(good, (struct row_span){2, 1, 4, 1}, 1);
    refuses(good, (struct row_span){9, 1, 3, 1}, 1); /* this key would belong to two shards */
}

static void each_shard_is_found_and_no_other(void **state)
{
    struct row_span spans[5], found;
    struct row_directory directory = {spans, 5, KEYS, SHARDS};
    for (uint32_t i = 0; i < 5; i++)
        spans[i] = (struct row_span){.shard = 7 * i + 1, .epoch = i, .first = 2 * i, .count = 2};
    for (uint32_t shard = 0; shard < SHARDS + 2; shard++) {
        bool is_there = shard % 7 == 1 && shard <= 29;
        assert_int_equal(row_directory_find(&directory, shard, &found), is_there ? 0 : -ENOENT);
        assert_true(!is_there || found.epoch == shard / 7);
    }
}

/* A worker may write to its directory at any time. */
static void an_entry_is_checked_at_each_use(void **state)
{
    struct row_span spans[] = {{3, 1, 0, 4}, {9, 1, 4, 6}}, found;
    struct row_directory directory = {spans, 2, KEYS, SHARDS};
    uint32_t index;
    assert_int_equal(row_directory_check(&directory, &index), 0);
    spans[1].count = UINT32_MAX;
    assert_int_equal(row_directory_find(&directory, 9, &found), -EBADMSG);
    spans[1].count = 7;
    assert_int_equal(row_directory_read(&directory, 1, &found), -EBADMSG);
    spans[1] = (struct row_span){.shard = 1, .count = 1};
    assert_int_equal(row_directory_find(&directory, 9, &found), -ENOENT);
}

static void entries_at_any_address_are_read(void **state)
{
    const struct row_span span = {3, 1, 0, 4};
    char memory[sizeof span + 8];
    for (size_t shift = 0; shift < 8; shift++) {
        struct row_directory directory = {memory + shift, 1, KEYS, SHARDS};
        struct row_span found;
        memcpy(memory + shift, &span, sizeof span);
        assert_int_equal(row_directory_find(&directory, 3, &found), 0);
        assert_memory_equal(&found, &span, sizeof span);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_that_ascend_pass_with_gaps_and_without),
        cmocka_unit_test(a_wrong_entry_is_named),
        cmocka_unit_test(each_shard_is_found_and_no_other),
        cmocka_unit_test(an_entry_is_checked_at_each_use),
        cmocka_unit_test(entries_at_any_address_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
