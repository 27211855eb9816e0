/* Tests the runs of pulls over a network (A99): a run has the keys of several shards, if no key of
 * another lane is between these keys. The test counts the calls that begin a run. */
#include "svc/lane/rows/port.h"
#include "test/unit/lane/rows/rows_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define MANY 70000 /* more keys than one run can have */
#define SMALL 300

static unsigned runs;

int __real_port_begin(const struct lane_table *table, struct row_request *pull,
                      const struct row_span *span, uint32_t count, bool is_last);
int __wrap_port_begin(const struct lane_table *table, struct row_request *pull,
                      const struct row_span *span, uint32_t count, bool is_last);
int __wrap_port_begin(const struct lane_table *table, struct row_request *pull,
                      const struct row_span *span, uint32_t count, bool is_last)
{
    runs++;
    return __real_port_begin(table, pull, span, count, is_last);
}

static void start_on(uint32_t lanes, const struct table_terms *terms)
{
    rows_start(&rig, lanes, 1, terms);
    rows_set(&rig, &settings);
    runs = 0;
}

/* Pulls `count` keys, and checks all elements. Every third row was updated once, and all other rows
 * have the initial value. */
static void pull_all(const uint64_t *all, size_t count)
{
    float *rows = malloc(count * DIM * sizeof *rows);
    struct rows_asked *pull = rows_pull(&rig, 0, all, count);
    rows_take(&rig, pull, rows);
    for (size_t i = 0; i < count * DIM; i++) {
        float expected = i / DIM % 3 == 0 ? START - 0.25f : START;
        assert_float_equal(rows[i], expected, 0);
    }
    rows_asked_free(pull);
    free(rows);
    rows_settle(&rig);
}

/* Pushes ones for every third key, and ends the clock. */
static uint64_t *push_thirds(size_t count)
{
    uint64_t *all = malloc(count * sizeof *all), *thirds = malloc(count * sizeof *thirds);
    float *gradients = malloc(count * DIM * sizeof *gradients);
    size_t pushed = 0;
    for (size_t i = 0; i < count; i++) {
        all[i] = 17 * i + 3;
        if (i % 3 == 0)
            thirds[pushed++] = all[i];
    }
    for (size_t i = 0; i < pushed * DIM; i++)
        gradients[i] = 1;
    struct rows_asked *push = rows_push(&rig, 0, thirds, pushed, gradients);
    rows_clock(&rig, 0);
    rows_wait(&rig, push);
    rows_asked_free(push);
    rows_forget_memory(&rig, 0);
    free(thirds);
    free(gradients);
    return all;
}

static void one_run_has_the_keys_of_all_shards(void **state)
{
    struct table_terms terms = users;
    terms.shards = 64;
    start_on(1, &terms);
    uint64_t *all = push_thirds(SMALL);
    pull_all(all, SMALL);
    assert_int_equal(runs, 1);
    free(all);
    rows_stop(&rig);
}

/* Each lane has every second shard. */
static void keys_of_another_lane_end_a_run(void **state)
{
    struct table_terms terms = users;
    terms.shards = 16;
    start_on(2, &terms);
    uint64_t *all = push_thirds(SMALL);
    pull_all(all, SMALL);
    assert_int_equal(runs, 16);
    free(all);
    rows_stop(&rig);
}

/* The directory of 256 entries is copied in four parts. At the end of each part a run ends. */
static void a_run_ends_with_the_copied_entries(void **state)
{
    struct table_terms terms = users;
    terms.shards = 256;
    start_on(1, &terms);
    uint64_t *all = push_thirds(20000);
    pull_all(all, 20000);
    assert_int_equal(runs, 256 / ROW_SPANS);
    free(all);
    rows_stop(&rig);
}

static void a_long_pull_has_several_runs(void **state)
{
    start_on(1, &users);
    uint64_t *all = push_thirds(MANY);
    pull_all(all, MANY);
    assert_int_equal(runs, 2);
    free(all);
    rows_stop(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_run_has_the_keys_of_all_shards),
        cmocka_unit_test(keys_of_another_lane_end_a_run),
        cmocka_unit_test(a_run_ends_with_the_copied_entries),
        cmocka_unit_test(a_long_pull_has_several_runs),
    };
    rows_kind = "ofi";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
