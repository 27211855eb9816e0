/* Tests the results that `gradpool-bench migrate` computes from iterations: which iterations count
 * for the median, the length of a migration, and the hidden part of a migration. */
#include "bench/migrate/reckon.h"

#include "svc/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define WORKERS 2
#define ITERATIONS 30
#define LAP_MS 100
#define NEAR 1e-6

static struct crowd crowd;

/* No worker runs in this test. */
int trainee_run(const struct trainee *trainee) { return 0; }
int64_t trainee_count_wrong(const struct trainee *trainee) { return 0; }

/* Records an iteration of `ms` milliseconds, from the begin of the first worker to the end of the
 * second worker. Each worker is idle for the last `still_ms` of its iteration. The second worker
 * begins 4 ms later than the first. */
static void lap(uint32_t iteration, uint64_t ms, uint64_t still_ms)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        uint64_t begin_ns = NS_PER_S * iteration + 4 * NS_PER_MS * rank;
        uint64_t end_ns = begin_ns + (ms - 4) * NS_PER_MS;
        crowd.boards[rank].laps[iteration] =
            (struct trainee_lap){.begin_ns = begin_ns,
                                 .pushed_ns = begin_ns + 50 * NS_PER_MS,
                                 .done_ns = end_ns - still_ms * NS_PER_MS,
                                 .end_ns = end_ns};
    }
}

static int begin(void **state)
{
    crowd = (struct crowd){.workers = WORKERS};
    crowd.boards = calloc(WORKERS, sizeof *crowd.boards);
    for (uint32_t i = 0; i < ITERATIONS; i++)
        lap(i, LAP_MS, 0);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        crowd.boards[rank].iterations = ITERATIONS;
    return 0;
}

static int end(void **state)
{
    free(crowd.boards);
    return 0;
}

static void a_worker_that_stands_still_for_a_migration_hides_no_part(void **state)
{
    const struct migrate_window window = {
        .first = 10, .last = 13, .migrates = true, .stands = true, .stood_in = 11};
    struct migrate_row row = {0};
    lap(10, LAP_MS + 40, 0); /* the order to migrate arrives after iteration 10 */
    lap(11, LAP_MS + 300, 300);
    reckon(&crowd, &window, 1, &row);
    /* 300 ms, and the 4 ms by which the second worker begins later */
    assert_float_equal(row.migration_ms, 304, NEAR);
    assert_float_equal(row.hidden_ms, 0, NEAR);
    assert_float_equal(row.visible_pause_fraction, 3, NEAR);
}

static void the_hidden_part_of_a_live_migration_is_absent_from_iterations(void **state)
{
    const struct migrate_window window = {
        .first = 10, .last = 16, .migrates = true, .answer_ms = 500};
    struct migrate_row row = {0};
    lap(12, LAP_MS + 30, 0);
    reckon(&crowd, &window, 1, &row);
    assert_float_equal(row.migration_ms, 500, NEAR);
    assert_float_equal(row.hidden_ms, 470, NEAR);
}

static void a_live_migration_that_is_seen_longer_than_it_took_hides_nothing(void **state)
{
    const struct migrate_window window = {
        .first = 10, .last = 16, .migrates = true, .answer_ms = 20};
    struct migrate_row row = {0};
    lap(12, LAP_MS + 30, 0);
    reckon(&crowd, &window, 1, &row);
    assert_float_equal(row.hidden_ms, 0, NEAR);
}

/* If the median did not include the ten iterations of the second window, it would be 100. */
static void medians_include_windows_without_a_migration(void **state)
{
    const struct migrate_window windows[] = {{.first = 6, .last = 15, .migrates = true},
                                             {.first = 16, .last = 25}};
    struct migrate_row row = {0};
    for (uint32_t i = 16; i <= 25; i++)
        lap(i, LAP_MS + 20, 0);
    lap(20, LAP_MS + 50, 0);
    reckon(&crowd, windows, 2, &row);
    assert_float_equal(row.iteration_ms, 120, NEAR);
    assert_float_equal(row.control_fraction, 0.25, NEAR);
}

static void iterations_near_a_migration_are_never_the_medians(void **state)
{
    const struct migrate_window window = {.first = 6, .last = 24, .migrates = true};
    struct migrate_row row = {0};
    for (uint32_t i = 6; i <= 24; i++)
        lap(i, 2 * LAP_MS, 0);
    reckon(&crowd, &window, 1, &row);
    assert_float_equal(row.iteration_ms, LAP_MS, NEAR);
    assert_float_equal(row.visible_pause_fraction, 1, NEAR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_worker_that_stands_still_for_a_migration_hides_no_part,
                                        begin, end),
        cmocka_unit_test_setup_teardown(
            the_hidden_part_of_a_live_migration_is_absent_from_iterations, begin, end),
        cmocka_unit_test_setup_teardown(
            a_live_migration_that_is_seen_longer_than_it_took_hides_nothing, begin, end),
        cmocka_unit_test_setup_teardown(medians_include_windows_without_a_migration, begin, end),
        cmocka_unit_test_setup_teardown(iterations_near_a_migration_are_never_the_medians, begin,
                                        end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
