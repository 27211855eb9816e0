/* Tests stripes. A stripe is a range of keys, with the gradients of these keys in all pushes of a
 * clock (its sources). Tests the order of sources, and the start of a stripe. */
#include "svc/lane/table/clock.h"
#include "svc/lane/table/stripe.h"
#include "test/unit/lane/table/table_rig.h"

#define PARTS 8
#define SOURCES 64

static struct rig rig;
static struct stripe stripe;

static int begin(void **state)
{
    rig_init(&rig, 0, 0);
    assert_int_equal(stripe_init(&stripe, &rig.allowance, PARTS, SOURCES), 0);
    return 0;
}

static int end(void **state)
{
    stripe_fini(&stripe);
    rig_fini(&rig);
    return 0;
}

static int add(uint32_t rank, uint64_t sequence, const uint64_t *keys, size_t count, bool is_last)
{
    return stripe_add(
        &stripe, &rig.shard,
        &(struct stripe_part){
            .rank = rank, .sequence = sequence, .keys = keys, .count = count, .is_last = is_last},
        NULL);
}

static void assert_sources(uint32_t key, const struct stripe_source *want, uint32_t count)
{
    assert_int_equal(stripe.starts[key + 1] - stripe.starts[key], count);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(stripe.sources[stripe.starts[key] + i].part, want[i].part);
        assert_int_equal(stripe.sources[stripe.starts[key] + i].position, want[i].position);
    }
}

static void sources_of_a_key_are_in_the_order_of_rank_and_sequence(void **state)
{
    static const uint64_t a[] = {5, 7, 9}, b[] = {7}, c[] = {1, 7};
    assert_int_equal(add(2, 1, a, 3, true), 0);
    assert_int_equal(add(0, 4, b, 1, true), 0);
    assert_int_equal(add(0, 3, c, 2, true), 0);
    assert_int_equal(stripe_cut(&stripe), 0);
    assert_int_equal(stripe.keys_count, 4);
    assert_int_equal(stripe.sources_count, 6);
    assert_true(stripe.is_end);
    assert_int_equal(stripe.last, UINT64_MAX);
    assert_memory_equal(stripe.keys, ((uint64_t[]){1, 5, 7, 9}), 32);
    assert_sources(0, (struct stripe_source[]){{0, 0}}, 1);
    assert_sources(1, (struct stripe_source[]){{2, 0}}, 1);
    assert_sources(2, (struct stripe_source[]){{0, 1}, {1, 0}, {2, 1}}, 3);
    assert_sources(3, (struct stripe_source[]){{2, 2}}, 1);
}

static void a_stripe_ends_where_a_window_ends(void **state)
{
    static const uint64_t a[] = {1, 4}, b[] = {2, 3, 8, 9}, more[] = {6, 10};
    add(0, 1, a, 2, false);
    add(1, 1, b, 4, true);
    assert_int_equal(stripe_cut(&stripe), 0);
    assert_int_equal(stripe.last, 4);
    assert_false(stripe.is_end);
    assert_memory_equal(stripe.keys, ((uint64_t[]){1, 2, 3, 4}), 32);
    stripe_pass(&stripe);
    assert_int_equal(stripe_cut(&stripe), -EAGAIN);
    assert_int_equal(stripe_show(&stripe, &rig.shard, 0, more, 2, true, NULL), 0);
    assert_int_equal(stripe_cut(&stripe), 0);
    assert_true(stripe.is_end);
    assert_memory_equal(stripe.keys, ((uint64_t[]){6, 8, 9, 10}), 32);
    stripe_pass(&stripe);
    assert_int_equal(stripe_cut(&stripe), 0);
    assert_int_equal(stripe.keys_count, 0);
    assert_true(stripe.is_end);
}

static void a_stripe_takes_no_more_gradients_than_fit(void **state)
{
    static uint64_t keys[PARTS][SOURCES];
    for (uint32_t part = 0; part < PARTS; part++) {
        for (uint64_t i = 0; i < SOURCES; i++)
            keys[part][i] = i << 40;
        add(part, 1, keys[part], SOURCES, true);
    }
    for (uint64_t first = 0; first < SOURCES; first += SOURCES / PARTS) {
        assert_int_equal(stripe_cut(&stripe), 0);
        assert_int_equal(stripe.sources_count, SOURCES);
        assert_int_equal(stripe.keys_count, SOURCES / PARTS);
        assert_int_equal(stripe.keys[0], first << 40);
        assert_int_equal(stripe.is_end, first + SOURCES / PARTS == SOURCES);
        stripe_pass(&stripe);
    }
}

static void wrong_keys_of_a_worker_are_refused(void **state)
{
    static const uint64_t twice[] = {3, 3}, falling[] = {3, 9, 8};
    static const uint64_t foreign[] = {UINT64_C(1) << 62, UINT64_C(3) << 62}, good[] = {1, 2};
    struct stripe_part part = {.rank = 1, .keys = twice, .count = 2, .is_last = true};
    size_t position = 99;
    assert_int_equal(stripe_add(&stripe, &rig.shard, &part, &position), -EBADMSG);
    assert_int_equal(position, 1);
    part.keys = falling;
    part.count = 3;
    assert_int_equal(stripe_add(&stripe, &rig.shard, &part, &position), -EBADMSG);
    assert_int_equal(position, 2);
    struct rig quarter;
    rig_init(&quarter, 1, 2);
    part.keys = foreign;
    part.count = 2;
    assert_int_equal(stripe_add(&stripe, &quarter.shard, &part, &position), -EBADMSG);
    assert_int_equal(position, 1);
    rig_fini(&quarter);
    assert_int_equal(stripe.parts_count, 0);
    assert_int_equal(add(1, 1, good, 2, false), 0);
    assert_int_equal(add(1, 1, good, 2, false), -EALREADY);
    assert_int_equal(stripe_cut(&stripe), 0);
    stripe_pass(&stripe);
    assert_int_equal(stripe_show(&stripe, &rig.shard, 0, good, 2, true, &position), -EBADMSG);
    assert_int_equal(position, 0);
    assert_int_equal(stripe.parts[0].count, 0);
}

static void more_parts_than_fit_are_refused(void **state)
{
    static const uint64_t keys[] = {1};
    for (uint32_t part = 0; part < PARTS; part++)
        assert_int_equal(add(part, 1, keys, 1, true), 0);
    assert_int_equal(add(PARTS, 1, keys, 1, true), -ENOSPC);
    stripe_clear(&stripe);
    assert_int_equal(add(PARTS, 1, keys, 1, true), 0);
}

static void a_lost_rank_is_dropped_whole(void **state)
{
    static const uint64_t a[] = {1, 2}, b[] = {2, 3};
    add(0, 1, a, 2, true);
    add(1, 1, a, 2, true);
    add(1, 2, b, 2, true);
    add(2, 1, b, 2, true);
    assert_int_equal(stripe_cut(&stripe), 0);
    assert_int_equal(stripe_drop_rank(&stripe, 7), 0);
    assert_int_equal(stripe.keys_count, 3);
    assert_int_equal(stripe_drop_rank(&stripe, 1), 2);
    assert_int_equal(stripe.keys_count, 0);
    assert_int_equal(stripe_cut(&stripe), 0);
    assert_int_equal(stripe.sources_count, 4);
    assert_sources(1, (struct stripe_source[]){{0, 1}, {1, 0}}, 2);
}

static void keys_that_are_applied_already_are_skipped(void **state)
{
    static const uint64_t a[] = {1, 4, 6}, b[] = {2, 3};
    add(0, 1, a, 3, true);
    add(1, 1, b, 2, true);
    stripe_skip(&stripe, 0);
    assert_int_equal(stripe.parts[0].count, 3);
    stripe_skip(&stripe, 4);
    assert_int_equal(stripe_cut(&stripe), 0);
    assert_memory_equal(stripe.keys, ((uint64_t[]){4, 6}), 16);
    assert_int_equal(stripe.sources_count, 2);
}

static void the_largest_keys_of_all_have_a_stripe(void **state)
{
    static const uint64_t a[] = {UINT64_MAX - 1}, b[] = {UINT64_MAX}, none[] = {UINT64_MAX};
    add(0, 1, a, 1, false);
    add(1, 1, b, 1, true);
    assert_int_equal(stripe_cut(&stripe), 0);
    assert_int_equal(stripe.keys_count, 1);
    assert_false(stripe.is_end);
    stripe_pass(&stripe);
    assert_int_equal(stripe_show(&stripe, &rig.shard, 0, none, 1, true, NULL), 0);
    assert_int_equal(stripe_cut(&stripe), 0);
    assert_int_equal(stripe.sources_count, 2);
    assert_true(stripe.is_end);
}

/* The quota refuses a stripe as a whole. As soon as the quota allows the stripe, the same stripe
 * continues. */
static void a_full_quota_begins_no_stripe(void **state)
{
    static uint64_t keys[SOURCES];
    struct shard_progress progress = {CLOCK_FIRST, 0};
    for (uint64_t i = 0; i < SOURCES; i++)
        keys[i] = i << 57 | 1;
    add(0, 1, keys, SOURCES, true);
    assert_int_equal(stripe_cut(&stripe), 0);
    rig.allowance.limit_bytes = rig.allowance.used_bytes;
    assert_int_equal(stripe_open(&stripe, &rig.shard), -EDQUOT);
    assert_int_equal(rig.shard.rows.count, 0);
    for (int i = 0; i < SOURCES; i++)
        assert_false(rig_has(&rig, keys[i]));
    assert_false(shard_progress_covers(&progress, CLOCK_FIRST, keys[0]));
    rig.allowance.limit_bytes += 1 << 20;
    assert_int_equal(stripe_open(&stripe, &rig.shard), SOURCES);
    for (uint32_t i = 0; i < SOURCES; i++)
        assert_int_equal(rows_key(&rig.shard.rows, stripe.rows[i]), stripe.keys[i]);
    assert_int_equal(stripe_open(&stripe, &rig.shard), 0);
}

static void the_nth_allocation_of_a_stripe_fails(void **state)
{
    struct rig memory;
    struct stripe other;
    int r = -ENOMEM;
    size_t failures = 0;
    for (; r < 0; failures++) {
        rig_init_memory(&memory);
        memory.left = failures;
        r = stripe_init(&other, &memory.allowance, PARTS, SOURCES);
        if (r < 0) {
            assert_int_equal(r, -ENOMEM);
            assert_int_equal(memory.blocks, 0);
        }
    }
    assert_true(failures > 6);
    stripe_fini(&other);
    assert_int_equal(memory.blocks, 0);
}

/* ---- random windows and random room, against a naive model ---- */

#define RANKS 4
#define PUSHES 2
#define KEYS 400 /* number of different keys */

/* The pushes of one clock. Each push is a list of ascending keys, with one number as the gradient
 * of each key. */
struct naive {
    size_t counts[RANKS][PUSHES];
    uint64_t keys[RANKS][PUSHES][KEYS];
};
static struct naive naive;

/* Returns the gradient of one key in one push. A sum in another order has other bits. */
static float gradient_of(uint32_t rank, uint64_t sequence, uint64_t key)
{
    return (float)(key % 977 + 1) * 0.001f + (float)rank * 1e5f + (float)sequence * 1e-3f;
}

static void naive_begin(void)
{
    for (uint32_t rank = 0; rank < RANKS; rank++)
        for (int push = 0; push < PUSHES; push++) {
            naive.counts[rank][push] = 0;
            for (uint64_t key = 0; key < KEYS; key++)
                if (random() % 3 == 0)
                    naive.keys[rank][push][naive.counts[rank][push]++] =
                        key * UINT64_C(0x9e3779b97f4a7c) + key;
        }
}

static float naive_sum(uint64_t key)
{
    float sum = 0;
    bool is_first = true;
    for (uint32_t rank = 0; rank < RANKS; rank++)
        for (int push = 0; push < PUSHES; push++)
            if (bsearch(&key, naive.keys[rank][push], naive.counts[rank][push], sizeof key,
                        rig_compare)) {
                float next = gradient_of(rank, (uint64_t)push, key);
                sum = is_first ? next : sum + next;
                is_first = false;
            }
    return sum;
}

/* Positions of the stripe's windows in the simple lists. */
static size_t shown[RANKS][PUSHES];

static bool any_window(uint32_t rank, int push, const uint64_t **ret_keys, size_t *ret_count)
{
    size_t at = shown[rank][push], left = naive.counts[rank][push] - at;
    size_t count = left == 0 ? 0 : 1 + (size_t)random() % left;
    *ret_keys = &naive.keys[rank][push][at];
    *ret_count = count;
    shown[rank][push] += count;
    return count == left;
}

static void add_all(void)
{
    const uint64_t *keys;
    size_t count;
    memset(shown, 0, sizeof shown);
    for (int push = 0; push < PUSHES; push++)
        for (uint32_t rank = RANKS; rank-- > 0;) { /* pushes arrive in another order */
            bool is_last = any_window(rank, push, &keys, &count);
            assert_int_equal(add(rank, (uint64_t)push, keys, count, is_last), 0);
        }
}

static void show_more(void)
{
    const uint64_t *keys;
    size_t count;
    for (uint32_t part = 0; part < stripe.parts_count; part++) {
        struct stripe_part *p = &stripe.parts[part];
        if (p->is_last || p->count > 0)
            continue;
        bool is_last = any_window(p->rank, (int)p->sequence, &keys, &count);
        assert_int_equal(stripe_show(&stripe, &rig.shard, part, keys, count, is_last, NULL), 0);
    }
}

/* Adds the sources of the stripe's keys to the rows. */
static void apply_stripe(void)
{
    for (uint32_t k = 0; k < stripe.keys_count; k++) {
        float sum = 0;
        for (uint32_t s = stripe.starts[k]; s < stripe.starts[k + 1]; s++) {
            const struct stripe_part *part = &stripe.parts[stripe.sources[s].part];
            assert_int_equal(part->keys[stripe.sources[s].position], stripe.keys[k]);
            float next = gradient_of(part->rank, part->sequence, stripe.keys[k]);
            sum = s == stripe.starts[k] ? next : sum + next;
        }
        *(float *)shard_values(&rig.shard, stripe.rows[k]) = sum;
        shard_moments(&rig.shard, stripe.rows[k])[0] += 1;
    }
}

static void stripes_give_the_sums_of_a_naive_model(void **state)
{
    for (uint32_t world = 0; world < extent(50, 10, 5000); world++) {
        struct shard_progress progress = {CLOCK_FIRST, 0};
        uint64_t rows = 0;
        end(NULL);
        begin(NULL);
        naive_begin();
        add_all();
        for (bool is_end = false; !is_end;) {
            show_more();
            assert_int_equal(stripe_cut(&stripe), 0);
            assert_true(stripe.sources_count <= SOURCES);
            assert_true(stripe_open(&stripe, &rig.shard) >= 0);
            apply_stripe();
            is_end = stripe.is_end;
            if (is_end)
                shard_progress_finish(&progress);
            else
                shard_progress_advance(&progress, stripe.last);
            stripe_pass(&stripe);
        }
        assert_int_equal(progress.clock, CLOCK_FIRST + 1);
        for (uint64_t key = 0; key < KEYS; key++) {
            uint64_t mixed = key * UINT64_C(0x9e3779b97f4a7c) + key;
            float want = naive_sum(mixed), got = rig_value(&rig, mixed);
            assert_true(got == (want == 0 ? NO_VALUE : want));
            rows += got != NO_VALUE;
        }
        assert_int_equal(rig.shard.rows.count, rows);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sources_of_a_key_are_in_the_order_of_rank_and_sequence,
                                        begin, end),
        cmocka_unit_test_setup_teardown(a_stripe_ends_where_a_window_ends, begin, end),
        cmocka_unit_test_setup_teardown(a_stripe_takes_no_more_gradients_than_fit, begin, end),
        cmocka_unit_test_setup_teardown(wrong_keys_of_a_worker_are_refused, begin, end),
        cmocka_unit_test_setup_teardown(more_parts_than_fit_are_refused, begin, end),
        cmocka_unit_test_setup_teardown(a_lost_rank_is_dropped_whole, begin, end),
        cmocka_unit_test_setup_teardown(keys_that_are_applied_already_are_skipped, begin, end),
        cmocka_unit_test_setup_teardown(the_largest_keys_of_all_have_a_stripe, begin, end),
        cmocka_unit_test_setup_teardown(a_full_quota_begins_no_stripe, begin, end),
        cmocka_unit_test_setup_teardown(the_nth_allocation_of_a_stripe_fails, begin, end),
        cmocka_unit_test_setup_teardown(stripes_give_the_sums_of_a_naive_model, begin, end),
    };
    return cmocka_run_group_tests(tests, rig_seed, NULL);
}
