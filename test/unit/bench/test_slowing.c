/* Tests the sleep of a lane of `gradpool-bench-slow`: the computed and the real time. */
#include "bench/stragglers/slowing.h"
#include "svc/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static void a_slow_lane_sleeps_in_proportion_to_its_work(void **state)
{
    struct slowing_numbers numbers = {0};
    struct slowing s = {.numbers = &numbers, .lane = 1};
    slowing_owe(&s, 1 << 20);
    assert_int_equal(s.debt_ns, 0);
    numbers.ns_per_kib[1] = 1000;
    slowing_owe(&s, 10 << 10); /* a time of 10 us is too short for a sleep */
    slowing_pay(&s);
    assert_int_equal(s.debt_ns, 10000);
    slowing_owe(&s, 2 << 20);
    uint64_t began_ns = clock_now_ns();
    slowing_pay(&s);
    assert_true(clock_now_ns() - began_ns >= 2048000 + 10000);
    assert_true(s.debt_ns <= 0);
}

static void one_task_may_be_slow_on_any_lane(void **state)
{
    const struct slowing_numbers numbers = {.task = 7, .task_ns = 5000};
    struct slowing s = {.numbers = &numbers, .lane = 1};
    slowing_owe_task(&s, 6);
    assert_int_equal(s.debt_ns, 0);
    slowing_owe_task(&s, 7);
    assert_int_equal(s.debt_ns, 5000);
    slowing_owe(&s, 1 << 20);
    assert_int_equal(s.debt_ns, 5000);
}

static void a_lane_without_numbers_is_never_slow(void **state)
{
    const struct slowing_numbers numbers = {.ns_per_kib = {1, 1, 1, 1}};
    struct slowing s = {0}, beyond = {.numbers = &numbers, .lane = SLOWING_LANES};
    slowing_owe(&s, 1 << 20);
    slowing_owe_task(&s, 0);
    slowing_owe(&beyond, 1 << 20);
    assert_int_equal(s.debt_ns, 0);
    assert_int_equal(beyond.debt_ns, 0);
}

static void a_file_of_numbers_is_read_as_it_changes_and_a_short_one_is_refused(void **state)
{
    char path[] = "/tmp/gradpool-slowing-XXXXXX";
    struct slowing_numbers numbers = {.ns_per_kib = {0, 0, 0, 9}};
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_null(slowing_map(path));
    assert_int_equal(write(fd, &numbers, sizeof numbers - 1), sizeof numbers - 1);
    assert_null(slowing_map(path));
    assert_int_equal(pwrite(fd, &numbers, sizeof numbers, 0), sizeof numbers);
    const struct slowing_numbers *mapped = slowing_map(path);
    assert_non_null(mapped);
    assert_int_equal(mapped->ns_per_kib[3], 9);
    numbers.ns_per_kib[3] = 10;
    assert_int_equal(pwrite(fd, &numbers, sizeof numbers, 0), sizeof numbers);
    assert_int_equal(mapped->ns_per_kib[3], 10);
    unlink(path);
    close(fd);
    assert_null(slowing_map(path));
}

int main(void)
{
    static const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_slow_lane_sleeps_in_proportion_to_its_work),
        cmocka_unit_test(one_task_may_be_slow_on_any_lane),
        cmocka_unit_test(a_lane_without_numbers_is_never_slow),
        cmocka_unit_test(a_file_of_numbers_is_read_as_it_changes_and_a_short_one_is_refused),
    };
    return cmocka_run_group_tests_name("slowing", cases, NULL, NULL);
}
