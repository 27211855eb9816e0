/* Tests the search for the number of workers of a stage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "packer/parallel/parallel.h"

#define TRIED_MAX 64

/* Runs trials until the rule has chosen a number of workers. time() returns the time of a unit of
 * work. Returns the number of trials. */
static size_t search(struct parallel *p, double (*time)(uint32_t workers), uint32_t *tried)
{
    size_t count = 0;
    while (parallel_is_trial(p)) {
        assert_true(count < TRIED_MAX);
        tried[count] = parallel_workers(p);
        parallel_measured(p, tried[count], time(tried[count]));
        count++;
    }
    return count;
}

static double perfect(uint32_t workers) { return 1000.0 / workers; }
/* Returns the time of a unit. The best number of workers is 4, because each further worker adds an
 * overhead of 60. */
static double with_overhead(uint32_t workers) { return 1000.0 / workers + 60.0 * workers; }
static double constant(uint32_t workers) { return 100; }
static double slightly_worse(uint32_t workers) { return workers == 1 ? 100 : 104; }

static void powers_of_two_are_tried_up_to_the_largest_number(void **state)
{
    static const uint32_t expected[] = {1, 2, 4, 8, 11};
    uint32_t tried[TRIED_MAX];
    struct parallel p;
    parallel_init(&p, PARALLEL_FASTEST, 1, 11);
    assert_int_equal(search(&p, perfect, tried), 5);
    assert_memory_equal(tried, expected, sizeof expected);
    assert_int_equal(parallel_workers(&p), 11);
}

static void the_search_begins_at_the_smallest_number(void **state)
{
    static const uint32_t expected[] = {3, 4, 8};
    uint32_t tried[TRIED_MAX];
    struct parallel p;
    parallel_init(&p, PARALLEL_FASTEST, 3, 8);
    assert_int_equal(search(&p, perfect, tried), 3);
    assert_memory_equal(tried, expected, sizeof expected);
}

static void the_search_ends_after_two_worse_trials_of_a_number(void **state)
{
    static const uint32_t expected[] = {1, 2, 4, 8, 8};
    uint32_t tried[TRIED_MAX];
    struct parallel p;
    parallel_init(&p, PARALLEL_FASTEST, 1, 64);
    assert_int_equal(search(&p, with_overhead, tried), 5);
    assert_memory_equal(tried, expected, sizeof expected);
    assert_int_equal(parallel_workers(&p), 4);
    assert_false(parallel_is_trial(&p));
}

static void one_slow_trial_does_not_end_the_search(void **state)
{
    static const uint32_t expected[] = {2, 4, 8};
    uint32_t tried[TRIED_MAX];
    struct parallel p;
    parallel_init(&p, PARALLEL_FASTEST, 1, 8);
    parallel_measured(&p, 1, perfect(1));
    parallel_measured(&p, 2, 9 * perfect(2));
    assert_int_equal(parallel_workers(&p), 2);
    assert_int_equal(search(&p, perfect, tried), 3);
    assert_memory_equal(tried, expected, sizeof expected);
    assert_int_equal(parallel_workers(&p), 8);
}

static void the_faster_of_two_trials_counts(void **state)
{
    struct parallel p;
    parallel_init(&p, PARALLEL_FASTEST, 1, 2);
    parallel_measured(&p, 1, 100);
    parallel_measured(&p, 2, 106);
    parallel_measured(&p, 2, 400);
    assert_int_equal(p.count, 2);
    assert_true(p.trials[1].unit_ns == 106);
    assert_int_equal(parallel_workers(&p), 1);
    assert_false(parallel_is_trial(&p));
}

static void a_number_within_five_percent_does_not_end_the_search(void **state)
{
    uint32_t tried[TRIED_MAX];
    struct parallel p;
    parallel_init(&p, PARALLEL_FASTEST, 1, 8);
    assert_int_equal(search(&p, slightly_worse, tried), 4);
    assert_int_equal(parallel_workers(&p), 1);
}

static void frugal_counts_the_slots(void **state)
{
    uint32_t tried[TRIED_MAX];
    struct parallel p;
    parallel_init(&p, PARALLEL_FRUGAL, 1, 8);
    assert_int_equal(search(&p, constant, tried), 3);
    assert_int_equal(parallel_workers(&p), 1);
    parallel_init(&p, PARALLEL_FRUGAL, 1, 8);
    assert_int_equal(search(&p, perfect, tried), 4); /* all numbers of workers have equal costs */
    assert_int_equal(parallel_workers(&p), 1);
}

static void one_possible_number_needs_no_trial(void **state)
{
    struct parallel p;
    parallel_init(&p, PARALLEL_FASTEST, 5, 5);
    assert_false(parallel_is_trial(&p));
    assert_int_equal(parallel_workers(&p), 5);
    parallel_measured(&p, 5, 1000);
    parallel_measured(&p, 5, 1);
    assert_false(parallel_is_trial(&p));
}

static void a_drift_begins_a_new_search(void **state)
{
    uint32_t tried[TRIED_MAX];
    struct parallel p;
    parallel_init(&p, PARALLEL_FASTEST, 1, 64);
    (void)search(&p, with_overhead, tried);
    parallel_measured(&p, 4, with_overhead(4) * 1.24);
    parallel_measured(&p, 4, with_overhead(4) * 0.76);
    assert_false(parallel_is_trial(&p));
    parallel_measured(&p, 4, with_overhead(4) * 1.26);
    assert_true(parallel_is_trial(&p));
    assert_int_equal(parallel_workers(&p), 1);
    assert_int_equal(search(&p, perfect, tried), 7);
    assert_int_equal(parallel_workers(&p), 64);
}

static void times_of_other_numbers_are_ignored(void **state)
{
    struct parallel p;
    parallel_init(&p, PARALLEL_FASTEST, 1, 4);
    parallel_measured(&p, 2, 10);
    parallel_measured(&p, 1, 0);
    assert_int_equal(p.count, 0);
    assert_int_equal(parallel_workers(&p), 1);
}

static void the_median_drops_the_first_two_steps(void **state)
{
    double odd[] = {1000, 900, 3, 1, 2}, even[] = {1000, 900, 4, 1, 2, 3}, few[] = {5, 6};
    assert_true(parallel_median(odd, 5) == 2);
    assert_true(parallel_median(even, 6) == 2.5);
    assert_true(parallel_median(few, 2) == 0);
    assert_true(parallel_median(few, 0) == 0);
}

static void every_pair_of_bounds_ends_within_the_trials(void **state)
{
    uint32_t tried[TRIED_MAX];
    struct parallel p;
    for (uint32_t most = 1; most <= 768; most += 7)
        for (uint32_t least = 1; least <= most; least += 5) {
            parallel_init(&p, PARALLEL_FASTEST, least, most);
            assert_in_range(search(&p, perfect, tried), 0, PARALLEL_TRIALS);
            assert_int_equal(parallel_workers(&p), most);
        }
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(powers_of_two_are_tried_up_to_the_largest_number),
        cmocka_unit_test(the_search_begins_at_the_smallest_number),
        cmocka_unit_test(the_search_ends_after_two_worse_trials_of_a_number),
        cmocka_unit_test(one_slow_trial_does_not_end_the_search),
        cmocka_unit_test(the_faster_of_two_trials_counts),
        cmocka_unit_test(a_number_within_five_percent_does_not_end_the_search),
        cmocka_unit_test(frugal_counts_the_slots),
        cmocka_unit_test(one_possible_number_needs_no_trial),
        cmocka_unit_test(a_drift_begins_a_new_search),
        cmocka_unit_test(times_of_other_numbers_are_ignored),
        cmocka_unit_test(the_median_drops_the_first_two_steps),
        cmocka_unit_test(every_pair_of_bounds_ends_within_the_trials),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
