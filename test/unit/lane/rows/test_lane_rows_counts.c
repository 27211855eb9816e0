/* Tests the counts of a table on its lanes (A101): rows, memory, keys of pulls and pushes, and
 * clocks. */
#include "svc/lane/job/table.h"
#include "svc/lane/rows/counts/table_counts.h"
#include "svc/lane/rows/table.h"
#include "test/unit/lane/rows/rows_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* number of keys that need more than one turn, and more than one page of rows in a shard */
#define MANY 5000
#define PART 1250 /* number of keys of one request, whose memory fits into a worker's region */

static struct table_counts_row measured_on(uint32_t lane)
{
    struct table_counts_row row = {0};
    assert_int_equal(table_counts_measure(rig.lanes[lane].lane, &row, 1), 1);
    assert_int_equal(row.job, RIG_JOB);
    assert_int_equal(row.table, ROWS_TABLE);
    return row;
}

/* Pulls all keys, and waits for the rows. */
static void pull(uint32_t rank)
{
    struct rows_asked *asked = rows_pull(&rig, rank, keys, KEYS);
    float rows[KEYS * DIM];
    rows_take(&rig, asked, rows);
    rows_asked_free(asked);
    rows_settle(&rig);
}

static void clocks_end(uint32_t workers)
{
    for (uint32_t rank = 0; rank < workers; rank++)
        rows_clock(&rig, rank);
}

static void a_new_table_has_no_rows_and_the_first_clock(void **state)
{
    start(2);
    struct table_counts_row row = measured_on(0);
    assert_int_equal(row.rows + row.births + row.pulled_keys + row.pushed_keys, 0);
    assert_int_equal(row.minimum_clock, 1);
    assert_int_equal(row.largest_clock, 1);
    rows_stop(&rig);
}

static void keys_of_all_ranks_count_and_a_row_is_born_once(void **state)
{
    start(2);
    push_ones(0);
    push_ones(1);
    rows_settle(&rig);
    assert_int_equal(measured_on(0).pushed_keys, 0); /* the clock has not ended */
    clocks_end(2);
    pull(1);
    struct table_counts_row row = measured_on(0);
    assert_int_equal(row.pushed_keys, 2 * KEYS);
    assert_int_equal(row.births, KEYS);
    assert_int_equal(row.rows, KEYS);
    assert_int_equal(row.pulled_keys, KEYS);
    push_ones(1);
    clocks_end(2);
    pull(0);
    row = measured_on(0);
    assert_int_equal(row.pushed_keys, 3 * KEYS);
    assert_int_equal(row.births, KEYS);
    assert_int_equal(row.pulled_keys, 2 * KEYS);
    rows_stop(&rig);
}

static void a_pull_of_absent_keys_counts_and_adds_no_row(void **state)
{
    start(1);
    pull(0);
    struct table_counts_row row = measured_on(0);
    assert_int_equal(row.pulled_keys, KEYS);
    assert_int_equal(row.rows, 0);
    rows_stop(&rig);
}

/* A key that occurs several times in a push is one key of the request. */
static void a_key_of_a_push_counts_once(void **state)
{
    const uint64_t twice[] = {5, 6, 5};
    start(1);
    rows_asked_free(rows_push(&rig, 0, twice, 3, ones));
    rows_clock(&rig, 0);
    pull(0);
    assert_int_equal(measured_on(0).pushed_keys, 2);
    assert_int_equal(measured_on(0).rows, 2);
    rows_stop(&rig);
}

static void the_rank_that_is_furthest_behind_is_named(void **state)
{
    start(3);
    rows_clock(&rig, 0);
    rows_clock(&rig, 0);
    rows_clock(&rig, 2);
    rows_settle(&rig);
    struct table_counts_row row = measured_on(0);
    assert_int_equal(row.minimum_clock, 1);
    assert_int_equal(row.largest_clock, 3);
    assert_int_equal(row.behind_rank, 1);
    rows_clock(&rig, 1);
    rows_clock(&rig, 1);
    rows_settle(&rig);
    row = measured_on(0);
    assert_int_equal(row.minimum_clock, 2);
    assert_int_equal(row.behind_rank, 2);
    rows_stop(&rig);
}

/* Pushes MANY keys, and waits until they are applied. */
static void push_many(void)
{
    static uint64_t many[PART];
    static float gradients[PART * DIM];
    for (uint64_t first = 0; first < MANY; first += PART) {
        for (uint64_t i = 0; i < PART; i++)
            many[i] = first + i;
        struct rows_asked *push = rows_push(&rig, 0, many, PART, gradients);
        rows_clock(&rig, 0);
        rows_wait(&rig, push);
        rows_asked_free(push);
        rows_forget_memory(&rig, 0);
    }
}

static void two_lanes_count_their_own_shards(void **state)
{
    rows_start(&rig, 2, 1, &users);
    rows_set(&rig, &settings);
    uint64_t empty_bytes = measured_on(0).bytes;
    push_many();
    struct table_counts_row rows[] = {measured_on(0), measured_on(1)};
    assert_int_equal(rows[0].rows + rows[1].rows, MANY);
    assert_int_equal(rows[0].rows + rows[1].rows, rows_stored(&rig));
    for (int i = 0; i < 2; i++) {
        uint64_t row_bytes = sizeof(uint64_t) + DIM * sizeof(float);
        assert_int_equal(rows[i].shards, users.shards / 2);
        assert_int_equal(rows[i].births, rows[i].rows);
        assert_int_equal(rows[i].pushed_keys, rows[i].rows);
        assert_true(rows[i].rows > MANY / 4);
        assert_true(rows[i].bytes >= empty_bytes);
        assert_true(rows[i].bytes >= rows[i].rows * row_bytes);
        const struct lane_job *job = job_find(rig.lanes[i].lane, RIG_JOB);
        assert_true(rows[i].bytes < job->tables->allowance.used_bytes);
    }
    rows_stop(&rig);
}

static void rows_beyond_the_limit_are_only_counted(void **state)
{
    struct table_counts_row row = {0};
    start(1);
    assert_int_equal(table_counts_measure(rig.lanes[0].lane, &row, 0), 1);
    assert_int_equal(row.job, 0);
    rows_stop(&rig);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_table_has_no_rows_and_the_first_clock),
        cmocka_unit_test(keys_of_all_ranks_count_and_a_row_is_born_once),
        cmocka_unit_test(a_pull_of_absent_keys_counts_and_adds_no_row),
        cmocka_unit_test(a_key_of_a_push_counts_once),
        cmocka_unit_test(the_rank_that_is_furthest_behind_is_named),
        cmocka_unit_test(two_lanes_count_their_own_shards),
        cmocka_unit_test(rows_beyond_the_limit_are_only_counted),
    };
    rows_set_kind(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
