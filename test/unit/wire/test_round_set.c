/* Tests sets of ranks in CHOSEN and PASSED. A set that was written in any form is read unchanged,
 * and a set that has no possible form is refused. */
#include "svc/wire/round_set.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RANKS_MOST 768

static void is_sound(const struct record_chosen *set)
{
    union record copy;
    size_t bytes;
    assert_int_equal(record_check(set, sizeof *set, &copy, &bytes), 0);
    assert_int_equal(bytes, sizeof *set);
}

static void has_counts(const struct record_chosen *set, const uint8_t *counts, uint32_t workers)
{
    uint32_t ranks = 0, gradients = 0, last = 0;
    for (uint32_t rank = 0; rank < RANKS_MOST; rank++) {
        uint32_t count = rank < workers ? counts[rank] : 0;
        assert_int_equal(round_set_count(set, rank), count);
        ranks += count > 0;
        gradients += count;
        last = count ? rank : last;
    }
    assert_int_equal(round_set_count(set, RANKS_MOST), 0);
    assert_int_equal(round_set_count(set, UINT32_MAX), 0);
    assert_int_equal(round_set_ranks(set), ranks);
    assert_int_equal(round_set_gradients(set), gradients);
    assert_true(round_set_is_within(set, last + 1));
    assert_false(round_set_is_within(set, last));
}

static void random_counts_are_read_as_they_were_written(void **state)
{
    unsigned seed = 20261129;
    print_message("# seed %u\n", seed);
    srandom(seed);
    for (int i = 0; i < 2000; i++) {
        uint8_t counts[RANKS_MOST] = {0};
        uint32_t most = i % 2 ? 1 : RECORD_GRADIENTS_MAX;
        uint32_t workers = 1 + (uint32_t)random() % (most > 1 ? RECORD_COUNTED_RANKS : RANKS_MOST);
        for (uint32_t rank = 0; rank < workers; rank++)
            counts[rank] = (uint8_t)((uint32_t)random() % (most + 1));
        counts[(uint32_t)random() % workers] = (uint8_t)most;
        struct record_chosen set;
        assert_int_equal(round_set_of_counts(&set, 1 + (uint64_t)i, counts, workers), 0);
        assert_int_equal(set.form, most > 1 ? RECORD_FORM_COUNTS : RECORD_FORM_RANKS);
        assert_int_equal(set.round, 1 + (uint64_t)i);
        is_sound(&set);
        has_counts(&set, counts, workers);
    }
}

static void each_rank_alone_is_read_again(void **state)
{
    for (uint32_t rank = 0; rank < RANKS_MOST; rank++) {
        uint64_t ranks[RECORD_MISSING_WORDS] = {0};
        uint8_t counts[RANKS_MOST] = {0};
        struct record_chosen set, same;
        ranks_add(ranks, rank);
        counts[rank] = 1;
        round_set_of_ranks(&set, 7, ranks);
        is_sound(&set);
        has_counts(&set, counts, RANKS_MOST);
        assert_int_equal(round_set_of_counts(&same, 7, counts, RANKS_MOST), 0);
        assert_true(round_set_is_same(&set, &same));
        assert_memory_equal(&set, &same, sizeof set);
    }
}

static void counts_without_a_form_are_refused(void **state)
{
    uint8_t counts[RANKS_MOST] = {0};
    struct record_chosen set = {.kind = RECORD_CHOSEN, .round = 9}, before = set;
    /* the set has no rank */
    assert_int_equal(round_set_of_counts(&set, 1, counts, RANKS_MOST), -EINVAL);
    counts[3] = RECORD_GRADIENTS_MAX + 1;
    assert_int_equal(round_set_of_counts(&set, 1, counts, RANKS_MOST), -EINVAL);
    counts[3] = 2;
    counts[RECORD_COUNTED_RANKS] = 1;
    assert_int_equal(round_set_of_counts(&set, 1, counts, RANKS_MOST), -EINVAL);
    assert_memory_equal(&set, &before, sizeof set);
    counts[RECORD_COUNTED_RANKS] = 0;
    counts[RECORD_COUNTED_RANKS - 1] = RECORD_GRADIENTS_MAX;
    assert_int_equal(round_set_of_counts(&set, 1, counts, RANKS_MOST), 0);
    has_counts(&set, counts, RANKS_MOST);
}

static void sets_differ_by_form_and_ranks_only(void **state)
{
    struct record_chosen a = {.kind = RECORD_CHOSEN, .round = 2, .ranks = {5}}, b = a;
    b.round = 3;
    b.epoch = 8;
    b.reason = RECORD_REASON_GAIN;
    assert_true(round_set_is_same(&a, &b));
    b.form = RECORD_FORM_COUNTS;
    assert_false(round_set_is_same(&a, &b));
    b = a;
    b.ranks[11] = 1;
    assert_false(round_set_is_same(&a, &b));
}

static void a_set_of_takers_may_be_empty(void **state)
{
    struct record_chosen takers = {.kind = RECORD_PASSED, .round = 2, .form = RECORD_FORM_TAKERS};
    is_sound(&takers);
    assert_int_equal(round_set_ranks(&takers), 0);
    assert_true(round_set_is_within(&takers, 0));
    ranks_add(takers.ranks, 700);
    assert_int_equal(round_set_count(&takers, 700), 1);
    assert_false(round_set_is_within(&takers, 700));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_counts_are_read_as_they_were_written),
        cmocka_unit_test(each_rank_alone_is_read_again),
        cmocka_unit_test(counts_without_a_form_are_refused),
        cmocka_unit_test(sets_differ_by_form_and_ranks_only),
        cmocka_unit_test(a_set_of_takers_may_be_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
