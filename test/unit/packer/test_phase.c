/* Whether begins of rounds make a phase: README of packer, R6 to R8. Noise is seeded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "packer/phase.h"

#include <stdbool.h>
#include <stdlib.h>

#define MS UINT64_C(1000000)
#define PERIOD (100 * MS)
#define SPAN (30 * MS)
#define START (5000 * MS)

/* Looks that each see ten more rounds, on time. Returns the newest begin. */
static uint64_t run(struct phase *p, uint32_t looks)
{
    uint64_t begun_ns = p->count ? p->begun_ns[p->count - 1] : START;
    for (uint32_t i = 0; i < looks; i++)
        phase_take(p, begun_ns += 10 * PERIOD, SPAN);
    return begun_ns;
}

static bool is_steady(const struct phase *p) { return phase_find(p, PERIOD).window_ns > 0; }

static void begins_on_time_make_a_phase(void **state)
{
    struct phase p = {0};
    uint64_t newest_ns = run(&p, 20);
    struct phase_burst burst = phase_find(&p, PERIOD);
    assert_int_equal(burst.begun_ns, newest_ns);
    assert_int_equal(burst.period_ns, PERIOD);
    assert_int_equal(burst.window_ns, SPAN);
}

static void a_few_looks_are_not_enough(void **state)
{
    struct phase p = {0};
    run(&p, PHASE_LOOKS - 1);
    assert_false(is_steady(&p));
    run(&p, 1);
    assert_true(is_steady(&p));
}

static void without_a_period_there_is_no_phase(void **state)
{
    struct phase p = {0};
    run(&p, 20);
    assert_int_equal(phase_find(&p, 0).window_ns, 0);
    assert_int_equal(phase_find(&p, UINT64_MAX).window_ns, 0);
}

static void a_period_that_is_a_little_wrong_is_put_right(void **state)
{
    struct phase p = {0};
    run(&p, 8);
    assert_int_equal(phase_find(&p, PERIOD + PERIOD / 200).period_ns, PERIOD);
    assert_int_equal(phase_find(&p, PERIOD - PERIOD / 200).period_ns, PERIOD);
    /* 70 rounds, but 69 of that length */
    assert_int_equal(phase_find(&p, PERIOD * 70 / 69).window_ns, 0);
}

static void one_begin_that_is_late_ends_a_phase_until_it_is_forgotten(void **state)
{
    for (uint64_t late_ns = PERIOD / 10; late_ns < PERIOD; late_ns += PERIOD / 10) {
        struct phase p = {0};
        uint64_t newest_ns = run(&p, 12);
        phase_take(&p, newest_ns + 10 * PERIOD + late_ns, SPAN);
        phase_take(&p, newest_ns + 20 * PERIOD, SPAN); /* on time again */
        for (uint32_t i = 0; i < PHASE_LOOKS - 2; i++) {
            assert_false(is_steady(&p));
            run(&p, 1);
        }
        run(&p, 1);
        assert_true(is_steady(&p));
    }
}

/* After a pause of no whole number of rounds bursts come at other times than before. */
static void a_pause_ends_a_phase(void **state)
{
    struct phase p = {0};
    uint64_t newest_ns = run(&p, 12);
    phase_take(&p, newest_ns + 40 * PERIOD + PERIOD / 3, SPAN);
    for (uint32_t i = 0; i < PHASE_LOOKS - 1; i++) {
        assert_false(is_steady(&p));
        run(&p, 1);
    }
    assert_true(is_steady(&p));
}

static double draw(void) { return (double)(rand() % 20001 - 10000) / 10000; }

/* Looks a second, ten rounds each; every round is off by up to so much of itself. */
static int steady_looks(double jitter)
{
    struct phase p = {0};
    int steady = 0;
    double at_ns = START;
    for (int look = 0; look < 1000; look++) {
        for (int round = 0; round < 10; round++)
            at_ns += (double)PERIOD * (1 + jitter * draw());
        phase_take(&p, (uint64_t)at_ns, SPAN);
        steady += is_steady(&p);
    }
    return steady;
}

static void jitter_is_carried_up_to_a_point(void **state)
{
    srand(7);
    assert_int_equal(steady_looks(0), 1000 - PHASE_LOOKS + 1);
    assert_in_range(steady_looks(0.005), 900, 1000);
    assert_in_range(steady_looks(0.10), 0, 150);
}

static void begins_at_any_time_make_none(void **state)
{
    struct phase p = {0};
    uint64_t begun_ns = START;
    srand(11);
    for (int look = 0; look < 10000; look++) {
        phase_take(&p, begun_ns += 9 * PERIOD + (uint64_t)rand() % PERIOD, SPAN);
        assert_false(is_steady(&p));
    }
}

static void what_is_not_known_ends_a_phase(void **state)
{
    const uint64_t unknown[][2] = {{0, SPAN}, {0, 0}, {UINT64_MAX / 2, 0}, {START, SPAN}};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        struct phase p = {0};
        run(&p, 12);
        phase_take(&p, unknown[i][0], unknown[i][1]);
        assert_false(is_steady(&p));
        run(&p, PHASE_LOOKS);
        assert_true(is_steady(&p));
    }
}

static void the_longest_window_counts_and_ends_within_the_period(void **state)
{
    struct phase p = {0};
    uint64_t newest_ns = run(&p, 12);
    phase_take(&p, newest_ns += 10 * PERIOD, 2 * SPAN);
    phase_take(&p, newest_ns += 10 * PERIOD, SPAN);
    assert_int_equal(phase_find(&p, PERIOD).window_ns, 2 * SPAN);
    phase_take(&p, newest_ns += 10 * PERIOD, PERIOD);
    assert_false(is_steady(&p));
}

static void a_round_longer_than_looks_are_apart_has_a_phase(void **state)
{
    struct phase p = {0};
    for (uint64_t i = 1; i <= PHASE_LOOKS; i++)
        phase_take(&p, START + i * PERIOD, SPAN);
    assert_true(is_steady(&p));
    /* Two begins cannot lie in one round. */
    assert_int_equal(phase_find(&p, 2 * PERIOD).window_ns, 0);
}

static struct phase_burst burst(uint64_t begun_ms, uint64_t window_ms)
{
    return (struct phase_burst){
        .begun_ns = begun_ms * MS, .period_ns = PERIOD, .window_ns = window_ms * MS};
}

static void expect_join(struct phase_burst a, struct phase_burst b, uint64_t begun_ms,
                        uint64_t window_ms)
{
    for (int turned = 0; turned < 2; turned++) {
        struct phase_burst both = turned ? phase_join(&b, &a) : phase_join(&a, &b);
        assert_int_equal(both.window_ns, window_ms * MS);
        if (window_ms > 0)
            assert_int_equal(both.begun_ns % PERIOD, begun_ms * MS);
    }
}

static void bursts_of_two_lanes_lie_in_one(void **state)
{
    expect_join(burst(1010, 30), burst(1010, 20), 10, 30);
    expect_join(burst(1010, 30), burst(1020, 30), 10, 40);
    expect_join(burst(1010, 30), burst(1320, 30), 10, 40);
    expect_join(burst(1320, 30), burst(2010, 30), 10, 40);
    expect_join(burst(1090, 30), burst(1310, 30), 90, 50); /* over the end of a period */
    expect_join(burst(1010, 60), burst(1420, 10), 10, 60);
    expect_join(burst(1010, 60), burst(1460, 60), 0, 0); /* no room is left */
    expect_join(burst(1010, 30), burst(1010, 0), 0, 0);
}

static void lanes_with_other_periods_make_no_phase(void **state)
{
    struct phase_burst other = burst(1010, 30);
    other.period_ns += PERIOD / 10;
    expect_join(burst(1010, 30), other, 0, 0);
}

static void an_offset_is_brought_up_to_now(void **state)
{
    struct phase_burst b = burst(1010, 30);
    assert_int_equal(phase_offset_ns(&b, 0), 1010 * MS);
    assert_int_equal(phase_offset_ns(&b, 1109 * MS), 1010 * MS);
    assert_int_equal(phase_offset_ns(&b, 1110 * MS), 1110 * MS);
    assert_int_equal(phase_offset_ns(&b, 3650 * MS), 3610 * MS);
    b = (struct phase_burst){0};
    assert_int_equal(phase_offset_ns(&b, 3650 * MS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(begins_on_time_make_a_phase),
        cmocka_unit_test(a_few_looks_are_not_enough),
        cmocka_unit_test(without_a_period_there_is_no_phase),
        cmocka_unit_test(a_period_that_is_a_little_wrong_is_put_right),
        cmocka_unit_test(one_begin_that_is_late_ends_a_phase_until_it_is_forgotten),
        cmocka_unit_test(a_pause_ends_a_phase),
        cmocka_unit_test(jitter_is_carried_up_to_a_point),
        cmocka_unit_test(begins_at_any_time_make_none),
        cmocka_unit_test(what_is_not_known_ends_a_phase),
        cmocka_unit_test(the_longest_window_counts_and_ends_within_the_period),
        cmocka_unit_test(a_round_longer_than_looks_are_apart_has_a_phase),
        cmocka_unit_test(bursts_of_two_lanes_lie_in_one),
        cmocka_unit_test(lanes_with_other_periods_make_no_phase),
        cmocka_unit_test(an_offset_is_brought_up_to_now),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
