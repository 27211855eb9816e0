/* Tests how the keys of a request are sorted, merged and distributed to shards. The result is
 * compared with a plain reference. The keys are random, or a few keys occur at many positions. Also
 * tests failed allocations. */
#include "client/lib/table/fold.h"
#include "client/lib/table/keys.h"
#include "svc/wire/mixed_key.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DIM 5
#define SEEDS 300

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

struct sample {
    uint64_t salt, state;
    size_t count;
    uint64_t *keys;
    struct table_keys sorted;
};

static uint64_t draw(struct sample *s, uint64_t below) { return mixed_key(s->state++, 0) % below; }

/* Draws `count` keys from `distinct` values. Most keys are among the first three values. */
static void sample_init(struct sample *s, uint64_t seed, size_t count, uint64_t distinct)
{
    *s = (struct sample){.state = seed << 32, .count = count, .salt = seed * seed};
    s->keys = calloc(count + 1, sizeof *s->keys);
    for (size_t i = 0; i < count; i++)
        s->keys[i] = draw(s, 2) ? draw(s, distinct) : draw(s, distinct < 3 ? distinct : 3);
    assert_int_equal(table_keys_set(&s->sorted, s->keys, count, 0, s->salt, NULL), 0);
}

static void sample_fini(struct sample *s)
{
    table_keys_fini(&s->sorted);
    free(s->keys);
}

static void assert_sorted(const struct sample *s)
{
    const struct table_keys *t = &s->sorted;
    bool *seen = calloc(s->count + 1, sizeof *seen);
    assert_int_equal(t->positions, s->count);
    assert_int_equal(t->starts[t->count], s->count);
    for (uint32_t run = 0; run < t->count; run++) {
        assert_true(run == 0 || t->mixed[run] > t->mixed[run - 1]);
        assert_true(t->starts[run] < t->starts[run + 1]);
        for (uint32_t i = t->starts[run]; i < t->starts[run + 1]; i++) {
            const struct table_place *place = &t->places[i];
            assert_true(i == t->starts[run] || place->position > place[-1].position);
            assert_int_equal(place->run, run);
            assert_int_equal(place->mixed, t->mixed[run]);
            assert_int_equal(mixed_key(s->keys[place->position], s->salt), place->mixed);
            assert_false(seen[place->position]);
            seen[place->position] = true;
        }
    }
    free(seen);
}

static void keys_are_ascending_and_their_positions_too(void **state)
{
    static const uint64_t distinct[] = {1, 2, 7, 1000, UINT64_MAX};
    static const size_t counts[] = {0, 1, 2, 24, 25, 300, 5000, 40000};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct sample s;
        sample_init(&s, seed, counts[seed % 8], distinct[seed % 5]);
        assert_sorted(&s);
        sample_fini(&s);
    }
}

/* After the hash, all these keys have the same high bits. The sort must handle such keys. */
static void crafted_keys_are_sorted(void **state)
{
    struct sample s = {.state = 3, .count = 5000, .salt = 77};
    s.keys = calloc(s.count, sizeof *s.keys);
    for (size_t i = 0; i < s.count; i++)
        s.keys[i] = mixed_key_undo(UINT64_C(0xabcdef) << 40 | draw(&s, 700), s.salt);
    assert_int_equal(table_keys_set(&s.sorted, s.keys, s.count, 0, s.salt, NULL), 0);
    assert_in_range(s.sorted.count, 650, 700);
    assert_sorted(&s);
    sample_fini(&s);
}

static void a_batch_is_used_again_for_other_keys(void **state)
{
    struct sample s;
    sample_init(&s, 9, 5000, UINT64_MAX);
    const struct table_place *places = s.sorted.places;
    for (s.count = 4000; s.count > 0; s.count /= 3) {
        assert_int_equal(table_keys_set(&s.sorted, s.keys, s.count, 0, s.salt, NULL), 0);
        assert_sorted(&s);
    }
    assert_ptr_equal(s.sorted.places, places);
    sample_fini(&s);
}

static void a_key_beyond_the_bound_is_named_by_its_position(void **state)
{
    uint64_t keys[] = {5, 9, 10, 11};
    struct table_keys sorted = {0};
    size_t wrong = 0;
    assert_int_equal(table_keys_set(&sorted, keys, 4, 10, 1, &wrong), -EINVAL);
    assert_int_equal(wrong, 2);
    assert_int_equal(sorted.count + sorted.positions, 0);
    assert_int_equal(table_keys_set(&sorted, keys, 4, 12, 1, &wrong), 0);
    assert_int_equal(sorted.count, 4);
    table_keys_fini(&sorted);
}

static void more_keys_than_one_sort_may_have_are_refused(void **state)
{
    struct table_keys sorted = {0};
    uint64_t key = 1;
    assert_int_equal(table_keys_set(&sorted, &key, TABLE_KEYS_MAX + 1, 0, 1, NULL), -E2BIG);
}

static void the_nth_allocation_fails(void **state)
{
    struct table_keys sorted = {0};
    uint64_t keys[] = {5, 9, 10, 11};
    int error = -ENOMEM;
    for (size_t n = 0; error < 0; n++) {
        left = n;
        error = table_keys_set(&sorted, keys, 4, 0, 1, NULL);
        left = SIZE_MAX;
        assert_int_equal(error, n < 4 ? -ENOMEM : 0);
        assert_int_equal(sorted.count, n < 4 ? 0 : 4);
    }
    table_keys_fini(&sorted);
}

static void the_spans_cover_all_keys_by_shard(void **state)
{
    static const uint32_t bits[] = {0, 1, 6, MIXED_KEY_SHARD_BITS_MAX};
    struct table_span *spans = calloc(1 << MIXED_KEY_SHARD_BITS_MAX, sizeof *spans);
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct sample s;
        uint32_t shard_bits = bits[seed % 4], next = 0;
        sample_init(&s, seed, seed * 100 - 100, UINT64_MAX);
        uint32_t count = table_keys_spans(&s.sorted, shard_bits, spans);
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(spans[i].first, next);
            assert_true(spans[i].count > 0 && (i == 0 || spans[i].shard > spans[i - 1].shard));
            for (; next < spans[i].first + spans[i].count; next++)
                assert_int_equal(mixed_key_shard(s.sorted.mixed[next], shard_bits), spans[i].shard);
        }
        assert_int_equal(next, s.sorted.count);
        sample_fini(&s);
    }
    free(spans);
}

/* Sums one element over all positions of a key, in order, in f32. */
static float plain_sum(const struct sample *s, uint32_t run, const float *gradients, uint32_t j)
{
    float sum = 0;
    bool is_first = true;
    for (size_t i = 0; i < s->count; i++) {
        if (mixed_key(s->keys[i], s->salt) != s->sorted.mixed[run])
            continue;
        sum = is_first ? gradients[i * DIM + j] : sum + gradients[i * DIM + j];
        is_first = false;
    }
    return sum;
}

static void assert_folded(const struct sample *s, enum reduce_dtype dtype, const float *gradients,
                          const void *rows)
{
    for (uint32_t run = 0; run < s->sorted.count; run++) {
        for (uint32_t j = 0; j < DIM; j++) {
            float sum = plain_sum(s, run, gradients, j);
            char want[sizeof(float)];
            size_t bytes = reduce_element_bytes(dtype);
            reduce_convert(REDUCE_F32, dtype, &sum, want, 1);
            assert_memory_equal((const char *)rows + (run * DIM + j) * bytes, want, bytes);
        }
    }
}

static void folds(enum reduce_dtype dtype)
{
    for (uint64_t seed = 1; seed <= 30; seed++) {
        struct sample s;
        sample_init(&s, seed, seed * 10, seed % 2 ? 50 : UINT64_MAX);
        float *gradients = calloc(s.count * DIM, sizeof *gradients);
        char *given = calloc(s.count * DIM, sizeof(float)), *rows = calloc(s.count * DIM, 4);
        for (size_t i = 0; i < s.count * DIM; i++)
            gradients[i] = (float)draw(&s, 1 << 20) * 0x1p-14f - 32;
        reduce_convert(REDUCE_F32, dtype, gradients, given, s.count * DIM);
        reduce_convert(dtype, REDUCE_F32, given, gradients, s.count * DIM);
        table_fold(&s.sorted, dtype, DIM, given, rows);
        assert_folded(&s, dtype, gradients, rows);
        free(gradients);
        free(given);
        free(rows);
        sample_fini(&s);
    }
}

static void gradients_of_duplicates_are_summed_by_position(void **state) { folds(REDUCE_F32); }
static void halves_are_summed_in_f32_and_rounded_once(void **state)
{
    folds(REDUCE_F16);
    folds(REDUCE_BF16);
}

static void every_position_gets_the_row_of_its_key(void **state)
{
    struct sample s;
    sample_init(&s, 5, 3000, 500);
    uint64_t *rows = calloc(s.sorted.count, 2 * sizeof *rows);
    uint64_t *spread = calloc(s.count, 2 * sizeof *spread);
    for (uint32_t run = 0; run < s.sorted.count; run++) {
        rows[2 * run] = s.sorted.mixed[run];
        rows[2 * run + 1] = ~s.sorted.mixed[run];
    }
    table_spread(&s.sorted, 2 * sizeof *rows, rows, spread);
    for (size_t i = 0; i < s.count; i++) {
        assert_int_equal(spread[2 * i], mixed_key(s.keys[i], s.salt));
        assert_int_equal(spread[2 * i + 1], ~spread[2 * i]);
    }
    free(rows);
    free(spread);
    sample_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_ascending_and_their_positions_too),
        cmocka_unit_test(crafted_keys_are_sorted),
        cmocka_unit_test(a_batch_is_used_again_for_other_keys),
        cmocka_unit_test(a_key_beyond_the_bound_is_named_by_its_position),
        cmocka_unit_test(more_keys_than_one_sort_may_have_are_refused),
        cmocka_unit_test(the_nth_allocation_fails),
        cmocka_unit_test(the_spans_cover_all_keys_by_shard),
        cmocka_unit_test(gradients_of_duplicates_are_summed_by_position),
        cmocka_unit_test(halves_are_summed_in_f32_and_rounded_once),
        cmocka_unit_test(every_position_gets_the_row_of_its_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
