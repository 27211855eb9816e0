/* Compares a shard with a simple model of the same rows, for random operations. Also tests millions
 * of new rows. */
#include "svc/wire/mixed_key.h"
#include "test/unit/lane/table/table_rig.h"

#define MODEL_KEYS 6000 /* number of keys; ten full pages contain fewer */
#define BATCH 500
#define SHARD_BITS 5

/* The simple model: all possible keys in ascending order, and the first value of each row. */
struct model {
    uint32_t number;
    size_t keys, rows;
    uint64_t key[MODEL_KEYS];
    float value[MODEL_KEYS]; /* NO_VALUE: absent */
};
static struct model model;

/* Returns a key of one of four kinds: random keys, adjacent keys, keys at the ends of the shard,
 * keys with few different tags. */
static uint64_t any_key(void)
{
    uint64_t first = mixed_key_first(model.number, SHARD_BITS);
    uint64_t last = mixed_key_last(model.number, SHARD_BITS), key = rig_random() >> SHARD_BITS;
    switch (random() % 8) {
    case 0: return first + key % 300;
    case 1: return last - key % 300;
    case 2: return first + (key % 16 << 50) + key % 20;
    default: return first | key;
    }
}

static void model_begin(void)
{
    model.number = (uint32_t)random() % (1 << SHARD_BITS);
    model.rows = model.keys = 0;
    for (size_t i = 0; i < MODEL_KEYS; i++)
        model.key[i] = any_key();
    qsort(model.key, MODEL_KEYS, sizeof *model.key, rig_compare);
    for (size_t i = 0; i < MODEL_KEYS; i++)
        if (i == 0 || model.key[i] != model.key[i - 1])
            model.key[model.keys++] = model.key[i];
    for (size_t i = 0; i < model.keys; i++)
        model.value[i] = NO_VALUE;
}

/* Returns a batch of positions, which may be unsorted and contain duplicates. */
static size_t any_batch(size_t *ret_positions, uint64_t *ret_keys)
{
    size_t count = (size_t)random() % BATCH, step = (size_t)random() % 20;
    size_t at = (size_t)random() % model.keys;
    for (size_t i = 0; i < count; i++) {
        at = (at + (step == 0 ? (size_t)random() : (size_t)random() % step)) % model.keys;
        ret_positions[i] = at;
        ret_keys[i] = model.key[at];
    }
    return count;
}

static void check_find(const struct rig *rig)
{
    size_t positions[BATCH];
    uint64_t keys[BATCH];
    uint32_t rows[BATCH];
    size_t count = any_batch(positions, keys);
    table_shard_find(&rig->shard, keys, count, rows);
    for (size_t i = 0; i < count; i++) {
        float value = model.value[positions[i]];
        assert_int_equal(rows[i] == ROWS_NONE, value == NO_VALUE);
        if (rows[i] == ROWS_NONE)
            continue;
        assert_int_equal(rows_key(&rig->shard.rows, rows[i]), keys[i]);
        assert_true(*(float *)shard_values(&rig->shard, rows[i]) == value);
    }
}

/* Creates rows with new values. If the memory does not suffice, no row may be created. */
static void check_bear(struct rig *rig)
{
    size_t positions[BATCH], births = 0;
    uint64_t keys[BATCH];
    uint32_t rows[BATCH];
    size_t count = any_batch(positions, keys);
    rig->left = random() % 3 == 0 ? (size_t)random() % 4 : NEVER;
    int64_t r = table_shard_add(&rig->shard, keys, count, rows);
    rig->left = NEVER;
    if (r < 0) {
        assert_int_equal(r, -ENOMEM);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        float *value = &model.value[positions[i]], *stored = shard_values(&rig->shard, rows[i]);
        births += *value == NO_VALUE;
        if (*value == NO_VALUE)
            *value = rig_initial(keys[i]);
        assert_true(*stored == *value);
        assert_true(shard_moments(&rig->shard, rows[i])[VALUES - 1] == 0);
        *value = *stored = (float)(random() % 1000);
    }
    assert_int_equal(r, births);
    model.rows += births;
}

static void check_walk(const struct rig *rig)
{
    uint32_t rows[BATCH];
    size_t most = 1 + (size_t)random() % BATCH, i = (size_t)random() % model.keys, found = 0;
    size_t count = table_shard_walk(&rig->shard, model.key[i], rows, most);
    for (; i < model.keys && found < most; i++) {
        if (model.value[i] == NO_VALUE)
            continue;
        assert_true(found < count);
        assert_int_equal(rows_key(&rig->shard.rows, rows[found++]), model.key[i]);
    }
    assert_int_equal(count, found);
}

static void a_shard_equals_a_naive_model(void **state)
{
    for (uint32_t world = 0; world < extent(10, 3, 1000); world++) {
        struct rig rig;
        model_begin();
        rig_init(&rig, model.number, SHARD_BITS);
        for (int step = 0; step < 150; step++) {
            check_bear(&rig);
            check_find(&rig);
            check_walk(&rig);
            assert_int_equal(rig.shard.rows.count, model.rows);
            assert_int_equal(rig.shard.index.count, model.rows);
        }
        assert_true(model.rows > 1000);
        rig_fini(&rig);
    }
}

#define PUSH 16384

/* Fills a push with mixed keys of a user's keys 0, 1, 2, ... */
static void fill_push(uint64_t *mixed, uint64_t first, uint64_t count, uint64_t salt)
{
    for (uint64_t i = 0; i < count; i++)
        mixed[i] = mixed_key(first + i, salt);
    qsort(mixed, count, sizeof *mixed, rig_compare);
}

/* Walks over all rows in the order of their keys. Each created key must occur exactly once, and no
 * other key may occur. */
static void assert_walk_is_whole(const struct rig *rig, uint64_t births, uint64_t salt)
{
    static uint32_t rows[PUSH];
    uint64_t from = 0, seen = 0;
    for (size_t count = PUSH; count == PUSH;) {
        count = table_shard_walk(&rig->shard, from, rows, PUSH);
        for (size_t i = 0; i < count; i++, seen++) {
            uint64_t mixed = rows_key(&rig->shard.rows, rows[i]);
            assert_true(mixed >= from);
            assert_true(mixed_key_undo(mixed, salt) < births);
            from = mixed + 1;
        }
    }
    assert_int_equal(seen, births);
}

static void millions_of_births_keep_every_row(void **state)
{
    static uint64_t mixed[PUSH];
    static uint32_t rows[PUSH];
    uint64_t births = extent(200000, 50000, 10000000), salt = rig_random();
    struct rig rig;
    rig_init(&rig, 0, 0);
    for (uint64_t first = 0; first < births; first += PUSH) {
        uint64_t count = births - first < PUSH ? births - first : PUSH;
        fill_push(mixed, first, count, salt);
        assert_int_equal(table_shard_add(&rig.shard, mixed, count, rows), count);
    }
    for (uint64_t first = 0; first < births; first += PUSH) {
        uint64_t count = births - first < PUSH ? births - first : PUSH;
        fill_push(mixed, first, count, salt);
        table_shard_find(&rig.shard, mixed, count, rows);
        for (uint64_t i = 0; i < count; i++)
            assert_true(rows[i] != ROWS_NONE && rows_key(&rig.shard.rows, rows[i]) == mixed[i]);
    }
    assert_walk_is_whole(&rig, births, salt);
    double beyond = (double)rig.allowance.used_bytes / (double)births -
                    (rig.shard.options.layout.row_bytes - 8);
    print_message("# %llu births: %.1f bytes a row beyond values and moments\n",
                  (unsigned long long)births, beyond);
    assert_true(beyond <= 32);
    rig_fini(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shard_equals_a_naive_model),
        cmocka_unit_test(millions_of_births_keep_every_row),
    };
    return cmocka_run_group_tests(tests, rig_seed, NULL);
}
