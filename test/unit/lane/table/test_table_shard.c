/* Tests the rows of a shard: creation, lookups, walks over all rows, quotas and failed
 * allocations. */
#include "svc/wire/mixed_key.h"
#include "test/unit/lane/table/table_rig.h"

#define BATCH 1000

static void fill_random(uint64_t *keys, size_t count, uint32_t number, uint32_t shard_bits)
{
    for (size_t i = 0; i < count; i++)
        keys[i] = mixed_key_first(number, shard_bits) | rig_random() >> shard_bits;
    qsort(keys, count, sizeof *keys, rig_compare);
}

static void add(struct rig *rig, const uint64_t *keys, size_t count, size_t births)
{
    uint32_t rows[BATCH];
    assert_true(count <= BATCH);
    assert_int_equal(table_shard_add(&rig->shard, keys, count, rows), births);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(rows_key(&rig->shard.rows, rows[i]), keys[i]);
}

static void a_pull_of_an_absent_key_creates_nothing(void **state)
{
    static uint64_t keys[BATCH];
    uint32_t rows[BATCH];
    struct rig rig;
    rig_init(&rig, 0, 0);
    uint64_t used = rig.allowance.used_bytes;
    fill_random(keys, BATCH, 0, 0);
    table_shard_find(&rig.shard, keys, BATCH, rows);
    for (int i = 0; i < BATCH; i++)
        assert_int_equal(rows[i], ROWS_NONE);
    assert_int_equal(rig.shard.rows.count, 0);
    assert_int_equal(rig.allowance.used_bytes, used);
    table_shard_find(&rig.shard, NULL, 0, NULL);
    rig_fini(&rig);
}

static void a_new_row_has_its_initial_values_and_no_moments(void **state)
{
    static const uint64_t keys[] = {0, 1, 77, UINT64_MAX - 1, UINT64_MAX};
    uint32_t rows[5];
    struct rig rig;
    rig_init(&rig, 0, 0);
    assert_int_equal(table_shard_add(&rig.shard, keys, 5, rows), 5);
    for (int i = 0; i < 5; i++)
        for (int v = 0; v < VALUES; v++) {
            assert_true(((float *)shard_values(&rig.shard, rows[i]))[v] == rig_initial(keys[i]));
            assert_true(shard_moments(&rig.shard, rows[i])[v] == 0);
        }
    assert_int_equal(table_shard_add(&rig.shard, keys, 5, rows), 0);
    rig_fini(&rig);
}

static void a_key_that_occurs_twice_gets_one_row(void **state)
{
    uint64_t keys[100];
    uint32_t rows[100];
    struct rig rig;
    rig_init(&rig, 0, 0);
    for (int i = 0; i < 100; i++)
        keys[i] = (uint64_t)(i / 50) << 60;
    assert_int_equal(table_shard_add(&rig.shard, keys, 100, rows), 2);
    for (int i = 0; i < 100; i++)
        assert_int_equal(rows[i], rows[i / 50 * 50]);
    rig_fini(&rig);
}

static void a_row_never_moves(void **state)
{
    static uint64_t keys[40 * BATCH];
    static char *places[BATCH];
    uint32_t rows[BATCH];
    struct rig rig;
    rig_init(&rig, 2, 3);
    fill_random(keys, 40 * BATCH, 2, 3);
    assert_true(table_shard_add(&rig.shard, keys, BATCH, rows) > 0);
    for (int i = 0; i < BATCH; i++)
        places[i] = rows_at(&rig.shard.rows, rows[i]);
    for (int b = 1; b < 40; b++)
        assert_true(table_shard_add(&rig.shard, keys + b * BATCH, BATCH, rows) > 0);
    assert_true(rig.shard.rows.blocks_count > 4 && rig.shard.index.pages > 60);
    table_shard_find(&rig.shard, keys, BATCH, rows);
    for (int i = 0; i < BATCH; i++)
        assert_ptr_equal(rows_at(&rig.shard.rows, rows[i]), places[i]);
    rig_fini(&rig);
}

/* Tests every length of a row. No two rows may overlap, and no row may be divided between two
 * blocks. */
static void rows_of_every_length_keep_apart(void **state)
{
    static const uint32_t lengths[] = {8, 16, 136, 2048, 4080, 4088, 4096, 8192, 49160};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        struct rig rig;
        struct table_rows rows;
        uint64_t left;
        uint32_t row[200];
        rig_init_memory(&rig);
        table_rows_init(&rows, &rig.allowance, lengths[l]);
        for (uint32_t i = 0; i < 200; i++) {
            size_t next = table_rows_next_block(&rows, &left);
            uint64_t used = rig.allowance.used_bytes;
            uint32_t lists = rows.blocks_room;
            assert_int_equal(table_rows_add(&rows, i, &row[i]), 0);
            memset(rows_at(&rows, row[i]) + 8, (int)i, lengths[l] - 8);
            if (lists == rows.blocks_room) /* true only if the list has not grown: a longer list
                                            * uses memory, too */
                assert_int_equal(rig.allowance.used_bytes - used, left ? 0 : next);
        }
        for (uint32_t i = 0; i < 200; i++) {
            const char *bytes = rows_at(&rows, row[i]) + 8;
            assert_int_equal(rows_key(&rows, row[i]), i);
            for (uint32_t b = 0; b < lengths[l] - 8; b++)
                if (bytes[b] != (char)i)
                    fail_msg("row %u of %u bytes: byte %u is another row's", i, lengths[l], b);
        }
        table_rows_fini(&rows);
        assert_int_equal(rig.blocks, 0);
    }
}

static void a_layout_has_room_for_its_parts(void **state)
{
    struct rows_layout halves = rows_layout(3 * 2, 1), wide = rows_layout(4096 * 4, 8192);
    assert_int_equal(halves.values_at, 8);
    assert_int_equal(halves.moments_at, 16);
    assert_int_equal(halves.row_bytes, 24);
    assert_int_equal(wide.row_bytes, ROWS_ROW_BYTES_MAX);
    assert_int_equal(rows_layout(4, 0).row_bytes, 16);
}

static void assert_unchanged(struct rig *rig, const uint64_t *keys, uint64_t rows_count)
{
    assert_int_equal(rig->shard.rows.count, rows_count);
    assert_int_equal(rig->shard.index.count, rows_count);
    for (int i = 0; i < BATCH; i++)
        assert_int_equal(rig_has(rig, keys[i]), i < (int)rows_count);
}

/* In each turn the quota allows one row less than the push needs. */
static void a_full_quota_creates_no_row(void **state)
{
    static uint64_t keys[BATCH];
    uint32_t rows[BATCH];
    struct rig rig;
    rig_init(&rig, 0, 0);
    fill_random(keys, BATCH, 0, 0);
    add(&rig, keys, 10, 10);
    for (;;) {
        rig.allowance.limit_bytes = rig.allowance.used_bytes + 4095;
        int64_t r = table_shard_add(&rig.shard, keys, BATCH, rows);
        assert_int_equal(r, -EDQUOT);
        assert_unchanged(&rig, keys, 10);
        rig.allowance.limit_bytes = rig.allowance.used_bytes + (1 << 20);
        rig.left = 1; /* permits one more block before the next refusal */
        r = table_shard_add(&rig.shard, keys, BATCH, rows);
        rig.left = NEVER;
        if (r >= 0)
            break;
        assert_int_equal(r, -ENOMEM);
        assert_unchanged(&rig, keys, 10);
    }
    add(&rig, keys, BATCH, 0);
    rig_fini(&rig);
}

static void a_lowered_allowance_keeps_existing_rows(void **state)
{
    static uint64_t keys[BATCH];
    uint32_t rows[BATCH];
    struct rig rig;
    rig_init(&rig, 0, 0);
    fill_random(keys, BATCH, 0, 0);
    add(&rig, keys, BATCH / 2, BATCH / 2);
    rig.allowance.limit_bytes = 1;
    assert_int_equal(table_shard_add(&rig.shard, keys, BATCH, rows), -EDQUOT);
    assert_int_equal(table_shard_add(&rig.shard, keys, BATCH / 2, rows), 0);
    rig_fini(&rig);
}

static void an_allowance_is_short_from_three_quarters_on(void **state)
{
    struct allowance allowance = {.limit_bytes = 400, .used_bytes = 299};
    assert_int_equal(allowance_wanted_bytes(&allowance), 0);
    allowance.used_bytes = 300;
    assert_int_equal(allowance_wanted_bytes(&allowance), ALLOWANCE_STEP_BYTES);
}

static void the_nth_allocation_fails(void **state)
{
    static uint64_t keys[3 * BATCH];
    static uint32_t rows[3 * BATCH];
    size_t failures = 0;
    fill_random(keys, 3 * BATCH, 5, 4);
    for (size_t n = 0;; n++) {
        struct rig rig;
        struct shard_options options = rig_options(5, 4);
        rig_init_memory(&rig);
        rig.left = n;
        int64_t r = table_shard_init(&rig.shard, &rig.allowance, &options);
        if (r < 0) {
            assert_int_equal(r, -ENOMEM);
            rig_fini(&rig);
            failures++;
            continue;
        }
        r = table_shard_add(&rig.shard, keys, 3 * BATCH, rows);
        bool has_failed = r < 0;
        assert_int_equal(r, has_failed ? -ENOMEM : 3 * BATCH);
        if (has_failed)
            assert_unchanged(&rig, keys, 0);
        rig.left = NEVER;
        r = table_shard_add(&rig.shard, keys, 3 * BATCH, rows);
        assert_int_equal(r, has_failed ? 3 * BATCH : 0);
        assert_int_equal(table_shard_walk(&rig.shard, 0, rows, 3 * BATCH), 3 * BATCH);
        rig_fini(&rig);
        failures += has_failed;
        if (!has_failed)
            break;
    }
    assert_true(failures > 15); /* an allocation of each kind has failed: blocks, pages, lists,
                                 * directories */
}

static void keys_with_the_same_tag_are_distinguished(void **state)
{
    uint64_t keys[INDEX_PAGE_ROWS_MAX];
    uint32_t rows[INDEX_PAGE_ROWS_MAX];
    struct rig rig;
    rig_init(&rig, 0, 0);
    for (int i = 0; i < INDEX_PAGE_ROWS_MAX; i++)
        keys[i] = UINT64_MAX - ((uint64_t)i * 2654435761u & 0xffffffff);
    assert_int_equal(table_shard_add(&rig.shard, keys, INDEX_PAGE_ROWS_MAX, rows),
                     INDEX_PAGE_ROWS_MAX);
    for (int i = 0; i < INDEX_PAGE_ROWS_MAX; i++)
        assert_true(rig_value(&rig, keys[i]) == rig_initial(keys[i]));
    qsort(keys, INDEX_PAGE_ROWS_MAX, sizeof *keys, rig_compare);
    assert_int_equal(table_shard_walk(&rig.shard, 0, rows, INDEX_PAGE_ROWS_MAX),
                     INDEX_PAGE_ROWS_MAX);
    for (int i = 0; i < INDEX_PAGE_ROWS_MAX; i++)
        assert_int_equal(rows_key(&rig.shard.rows, rows[i]), keys[i]);
    rig_fini(&rig);
}

static void crafted_keys_that_collide_are_refused_and_cost_little(void **state)
{
    static uint64_t keys[BATCH], crafted[BATCH];
    uint32_t rows[BATCH];
    struct rig rig;
    rig_init(&rig, 0, 0);
    fill_random(keys, BATCH, 0, 0);
    for (uint64_t i = 0; i < BATCH; i++)
        crafted[i] = UINT64_C(0xabcdef) << 40 | i;
    assert_int_equal(table_shard_add(&rig.shard, crafted, BATCH, rows), -ENOSPC);
    assert_int_equal(rig.shard.rows.count, 0);
    add(&rig, keys, BATCH, BATCH);
    assert_int_equal(table_shard_add(&rig.shard, crafted, BATCH, rows), -ENOSPC);
    assert_int_equal(rig.shard.rows.count, BATCH);
    for (int i = 0; i < BATCH; i++)
        assert_true(rig_has(&rig, keys[i]) && !rig_has(&rig, crafted[i]));
    assert_true(rig.allowance.used_bytes < 3 << 20);
    rig_fini(&rig);
}

static void a_walk_goes_in_the_order_of_mixed_keys_also_beside_births(void **state)
{
    static uint64_t keys[20 * BATCH];
    uint32_t rows[BATCH], most;
    uint64_t from = 0, seen = 0;
    struct rig rig;
    rig_init(&rig, 3, 2);
    fill_random(keys, 20 * BATCH, 3, 2);
    for (int b = 0; b < 20; b += 2)
        add(&rig, keys + b * BATCH, BATCH, BATCH);
    for (most = 1;; most = most % 97 + 1) {
        size_t count = table_shard_walk(&rig.shard, from, rows, most);
        for (size_t i = 0; i < count; i++, seen++) {
            uint64_t key = rows_key(&rig.shard.rows, rows[i]);
            assert_true(key >= from);
            from = key + 1;
        }
        if (count < most)
            break;
        /* creates rows at keys before the walk's position, which the walk does not visit */
        if (seen % 7 == 0)
            table_shard_add(&rig.shard, &(uint64_t){from - 1 - (uint64_t)random() % 1000}, 1, rows);
    }
    assert_true(seen >= 10 * BATCH && seen < 10 * BATCH + 10);
    assert_true(rig.shard.rows.count > seen + 10);
    assert_int_equal(table_shard_walk(&rig.shard, from, rows, BATCH), 0);
    rig_fini(&rig);
}

static void a_walk_ends_at_the_end_of_the_shard(void **state)
{
    uint32_t row;
    struct rig rig;
    for (uint32_t number = 0; number < 4; number++) {
        uint64_t last = mixed_key_last(number, 2), first = mixed_key_first(number, 2);
        rig_init(&rig, number, 2);
        add(&rig, (uint64_t[]){first, last}, 2, 2);
        assert_int_equal(table_shard_walk(&rig.shard, last, &row, 1), 1);
        assert_int_equal(rows_key(&rig.shard.rows, row), last);
        assert_int_equal(table_shard_walk(&rig.shard, 0, &row, 1), 1);
        if (last < UINT64_MAX)
            assert_int_equal(table_shard_walk(&rig.shard, last + 1, &row, 1), 0);
        rig_fini(&rig);
    }
}

static void a_mixed_key_can_be_undone_and_depends_on_the_salt(void **state)
{
    int same = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t key = rig_random(), salt = rig_random();
        assert_int_equal(mixed_key_undo(mixed_key(key, salt), salt), key);
        same += mixed_key(key, salt) >> 32 == mixed_key(key, salt + 1) >> 32;
    }
    assert_true(same < 3);
    assert_int_equal(mixed_key_shard(UINT64_MAX, 0), 0);
    assert_int_equal(mixed_key_shard(UINT64_MAX, 12), 4095);
    assert_int_equal(mixed_key_first(1, 12), UINT64_C(1) << 52);
    assert_int_equal(mixed_key_last(4095, 12), UINT64_MAX);
    assert_int_equal(mixed_key_last(0, 0), UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pull_of_an_absent_key_creates_nothing),
        cmocka_unit_test(a_new_row_has_its_initial_values_and_no_moments),
        cmocka_unit_test(a_key_that_occurs_twice_gets_one_row),
        cmocka_unit_test(a_row_never_moves),
        cmocka_unit_test(rows_of_every_length_keep_apart),
        cmocka_unit_test(a_layout_has_room_for_its_parts),
        cmocka_unit_test(a_full_quota_creates_no_row),
        cmocka_unit_test(a_lowered_allowance_keeps_existing_rows),
        cmocka_unit_test(an_allowance_is_short_from_three_quarters_on),
        cmocka_unit_test(the_nth_allocation_fails),
        cmocka_unit_test(keys_with_the_same_tag_are_distinguished),
        cmocka_unit_test(crafted_keys_that_collide_are_refused_and_cost_little),
        cmocka_unit_test(a_walk_goes_in_the_order_of_mixed_keys_also_beside_births),
        cmocka_unit_test(a_walk_ends_at_the_end_of_the_shard),
        cmocka_unit_test(a_mixed_key_can_be_undone_and_depends_on_the_salt),
    };
    return cmocka_run_group_tests(tests, rig_seed, NULL);
}
