/* Tests the rules of tables on a lane: clocks, pulls, settings, gradients, lost workers,
 * placement. */
#include "svc/lane/job/table.h"
#include "svc/lane/lane.h"
#include "svc/lane/rows/table.h"
#include "svc/wire/mixed_key.h"
#include "svc/wire/table/table_load.h"
#include "test/unit/lane/rows/rows_case.h"
#include "test/unit/skip.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- clocks ---- */

static void a_push_is_applied_when_all_members_have_ended_its_clock(void **state)
{
    start(2);
    struct rows_asked *push = rows_push(&rig, 0, keys, KEYS, ones);
    rows_clock(&rig, 0);
    rows_settle(&rig);
    assert_false(rows_is_done(&rig, push));
    assert_int_equal(rows_stored(&rig), 0);
    rows_clock(&rig, 1);
    rows_wait(&rig, push);
    assert_int_equal(rows_stored(&rig), KEYS);
    rows_asked_free(push);
    rows_are(rows_pull(&rig, 1, keys, KEYS), START - 0.25f);
    rows_stop(&rig);
}

static void a_pull_waits_for_the_clock_before(void **state)
{
    start(2);
    push_ones(0);
    rows_clock(&rig, 0);
    struct rows_asked *pull = rows_pull(&rig, 0, keys, KEYS);
    rows_settle(&rig);
    assert_false(rows_is_done(&rig, pull));
    push_ones(1);
    rows_clock(&rig, 1);
    rows_are(pull, START - 0.5f);
    rows_stop(&rig);
}

/* Pull, push and clocks arrive together. The pull must read the rows from before the push. */
static void a_pull_reads_no_push_of_its_clock(void **state)
{
    start(2);
    push_ones(0);
    struct rows_asked *pull = rows_pull(&rig, 1, keys, KEYS);
    rows_clock(&rig, 0);
    rows_clock(&rig, 1);
    rows_are(pull, START);
    rows_are(rows_pull(&rig, 1, keys, KEYS), START - 0.25f);
    rows_stop(&rig);
}

static void a_pull_of_an_absent_key_creates_nothing(void **state)
{
    start(1);
    rows_are(rows_pull(&rig, 0, keys, KEYS), START);
    assert_int_equal(rows_stored(&rig), 0);
    rows_stop(&rig);
}

static void clocks_without_pushes_end_at_once(void **state)
{
    start(2);
    for (int i = 0; i < 100; i++)
        rows_clock(&rig, 0);
    for (int i = 0; i < 100; i++)
        rows_clock(&rig, 1);
    rows_are(rows_pull(&rig, 0, keys, KEYS), START);
    assert_int_equal(worker_clock_now(&rig.workers[0].clock), 101);
    rows_stop(&rig);
}

static void a_repeated_clock_changes_nothing(void **state)
{
    const uint32_t table = ROWS_TABLE;
    struct record_clock record;
    start(2);
    rows_clock(&rig, 0);
    worker_clock_record(&rig.workers[0].clock, RECORD_CLOCK_ENDED, &table, 1, 0, &record);
    rows_send(&rig, 0, 0, &record, sizeof record);
    rows_clock(&rig, 1);
    rows_are(rows_pull(&rig, 0, keys, KEYS), START);
    rows_stop(&rig);
}

static void a_query_names_the_ranks_behind(void **state)
{
    start(3);
    rows_clock(&rig, 1);
    struct record_query query = {
        .kind = RECORD_QUERY, .is_of_table = 1, .word = 77, .piece = ROWS_TABLE, .round = 2};
    rows_send(&rig, 0, 1, &query, sizeof query);
    rig_until(&rig.lanes[0], worker(1)->clocks_count == 1);
    const struct record_clocks *clocks = &worker(1)->clocks;
    assert_int_equal(clocks->word, 77);
    assert_int_equal(clocks->minimum, 1);
    assert_int_equal(clocks->behind, 2);
    assert_int_equal(clocks->count, 2);
    assert_int_equal(clocks->ranks[0], 0);
    assert_int_equal(clocks->ranks[1], 2);
    assert_int_equal(clocks->clocks[1], 1);
    query.piece = 99; /* an unknown table: the query gets no answer, and the connection stays
                       * open */
    rows_send(&rig, 0, 1, &query, sizeof query);
    rows_are(rows_pull(&rig, 0, keys, KEYS), START);
    assert_int_equal(worker(1)->clocks_count, 1);
    rows_stop(&rig);
}

static struct lane_job_use measured(void)
{
    struct lane_use use;
    struct lane_job_use job;
    lane_measure(rig.lanes[0].lane, &use, &job, 1);
    assert_int_equal(use.jobs_count, 1);
    assert_true(job.busy_ns <= use.busy_ns);
    return job;
}

static uint64_t tables_ns(void)
{
    struct lane_piece_use rows[2];
    assert_int_equal(lane_measure_pieces(rig.lanes[0].lane, RIG_JOB, rows, 2), 1);
    assert_int_equal(rows[0].piece, TABLE_LOAD_CLOCKS);
    return rows[0].busy_ns;
}

/* A clock that all ranks have ended counts once, for all tables of the job together. */
static void clocks_of_a_job_without_pieces_are_its_rounds(void **state)
{
    start(2);
    rows_settle(&rig);
    assert_int_equal(measured().reference, 0);
    for (int clock = 0; clock < 3; clock++) {
        push_ones(0);
        rows_clock(&rig, 0);
        rows_settle(&rig);
        assert_int_equal(measured().begun_rounds, clock);
        rows_clock(&rig, 1);
        rows_settle(&rig);
        assert_int_equal(measured().reference, TABLE_LOAD_CLOCKS);
        assert_int_equal(measured().begun_rounds, clock + 1);
    }
    struct lane_job_use before = measured();
    uint64_t rows_ns = tables_ns();
    assert_in_range(rows_ns, 1, before.busy_ns);
    rows_clock(&rig, 0);
    rows_clock(&rig, 1);
    rows_are(rows_pull(&rig, 0, keys, KEYS), START - 0.75f);
    assert_true(tables_ns() > rows_ns);
    assert_true(measured().begun_ns > before.begun_ns);
    rows_stop(&rig);
}

/* ---- settings ---- */

static void settings_count_from_their_clock_on(void **state)
{
    start(2);
    push_ones(0);
    rows_clock(&rig, 0);
    rows_set(&rig, &(struct row_settings){.rate = 1}); /* rank 0 is in clock 2 */
    push_ones(0);
    rows_clock(&rig, 0);
    rows_clock(&rig, 1);
    rows_clock(&rig, 1);
    rows_are(rows_pull(&rig, 0, keys, KEYS), START - 1.25f);
    rows_stop(&rig);
}

static void settings_of_other_ranks_are_ignored(void **state)
{
    struct record_clock record = settings_record(1);
    start(2);
    rows_send(&rig, 0, 1, &record, sizeof record);
    push_ones(0);
    rows_clock(&rig, 0);
    rows_clock(&rig, 1);
    rows_are(rows_pull(&rig, 0, keys, KEYS), START - 0.25f);
    rows_stop(&rig);
}

/* ---- gradients ---- */

static void a_gradient_that_is_not_finite_skips_its_row(void **state)
{
    float gradients[KEYS * DIM], rows[KEYS * DIM];
    memcpy(gradients, ones, sizeof ones);
    gradients[2 * DIM] = NAN; /* key 900 */
    start(2);
    struct rows_asked *wrong = rows_push(&rig, 0, keys, KEYS, gradients);
    struct rows_asked *right = rows_push(&rig, 1, keys, KEYS, ones);
    rows_clock(&rig, 0);
    rows_clock(&rig, 1);
    rows_wait(&rig, right);
    rig_until(&rig.lanes[0], worker(0)->errors_count == 1);
    assert_true(rig_says(worker(0), -EDOM,
                         "table 'users': rows with NaN or infinity skipped: 1, first key 900"));
    assert_int_equal(worker(0)->error.word, wrong->word);
    assert_false(rows_is_done(&rig, wrong));
    struct rows_asked *pull = rows_pull(&rig, 1, keys, KEYS);
    rows_take(&rig, pull, rows);
    for (int i = 0; i < KEYS * DIM; i++)
        assert_float_equal(rows[i], (i / DIM == 2 ? START : START - 0.5f), 0);
    rows_asked_free(wrong);
    rows_asked_free(right);
    rows_asked_free(pull);
    rows_stop(&rig);
}

/* Each gradient is finite, but their sum is infinite, so both ranks get the error. */
static void a_sum_that_overflows_is_an_error_of_all_its_pushes(void **state)
{
    const float large[DIM] = {3e38f, 3e38f};
    start(2);
    rows_asked_free(rows_push(&rig, 0, keys, 1, large));
    rows_asked_free(rows_push(&rig, 1, keys, 1, large));
    rows_clock(&rig, 0);
    rows_clock(&rig, 1);
    rig_until(&rig.lanes[0], worker(0)->errors_count == 1 && worker(1)->errors_count == 1);
    assert_true(rig_says(worker(0), -EDOM, "first key 7"));
    assert_true(rig_says(worker(1), -EDOM, "first key 7"));
    rows_are(rows_pull(&rig, 1, keys, KEYS), START);
    rows_stop(&rig);
}

/* ---- workers that end ---- */

static void leave_job(uint32_t rank)
{
    const struct record_leave leave = {.kind = RECORD_LEAVE};
    rows_send(&rig, 0, rank, &leave, sizeof leave);
    rows_settle(&rig);
    fabric_disconnect(worker(rank)->conn);
    rig_until(&rig.lanes[0], worker(rank)->is_closed);
    rows_settle(&rig);
}

static void a_clock_that_a_left_worker_has_not_ended_fails_the_job(void **state)
{
    start(3);
    push_ones(0);
    leave_job(2);
    assert_int_equal(worker(1)->errors_count, 0);
    rows_clock(&rig, 0);
    fails(-EPIPE, "rank 2 has left job 'job' before the end of clock 1 of table 'users'");
}

static void a_worker_that_leaves_behind_others_fails_the_job(void **state)
{
    start(3);
    rows_clock(&rig, 0);
    rows_settle(&rig);
    leave_job(2);
    fails(-EPIPE, "rank 2 has left job 'job' before the end of clock 1 of table 'users'");
}

static void a_worker_that_leaves_with_its_pushes_fails_the_job(void **state)
{
    start(3);
    push_ones(2);
    rows_clock(&rig, 2);
    leave_job(2);
    fails(-EPIPE, "rank 2 has left job 'job' before its pushes to table 'users' were applied");
}

static void a_worker_may_leave_after_the_clocks_of_all(void **state)
{
    start(3);
    struct rows_asked *push = rows_push(&rig, 2, keys, KEYS, ones);
    rows_clock(&rig, 2);
    rows_clock(&rig, 0);
    rows_clock(&rig, 1);
    rows_wait(&rig, push);
    rows_asked_free(push);
    leave_job(2);
    rows_are(rows_pull(&rig, 0, keys, KEYS), START - 0.25f);
    assert_int_equal(worker(1)->errors_count, 0);
    rows_stop(&rig);
}

/* The mean is over all ranks of a job that is not elastic, even after a rank has left. */
static void a_slower_worker_ends_the_clocks_of_one_that_left(void **state)
{
    start(2);
    rows_clock(&rig, 1);
    leave_job(1);
    push_ones(0);
    rows_clock(&rig, 0);
    rows_are(rows_pull(&rig, 0, keys, KEYS), START - 0.25f);
    rows_stop(&rig);
}

static void a_lost_worker_fails_the_job(void **state)
{
    start(2);
    push_ones(0);
    fabric_disconnect(worker(0)->conn);
    rig_until(&rig.lanes[0], worker(1)->errors_count > 0);
    assert_int_equal(worker(1)->error.word, RECORD_WORD_NONE);
    assert_int_equal(rows_stored(&rig), 0);
    rows_stop(&rig);
}

/* Returns the first element of a stored row; NaN: the row does not exist. */
static float stored_value(uint64_t key)
{
    const struct lane_job *job = job_find(rig.lanes[0].lane, RIG_JOB);
    const struct lane_table *table = table_find(job, ROWS_TABLE);
    uint64_t mixed = mixed_key(key, ROWS_SALT);
    const struct table_shard *store =
        table_shard_at(table, mixed_key_shard(mixed, table->shard_bits))->store;
    uint32_t row;
    table_shard_find(store, &mixed, 1, &row);
    return row == ROWS_NONE ? NAN : *(const float *)shard_values(store, row);
}

static void rows_whose_pages_are_gone_change_nothing(void **state)
{
    if (!rows_are_mapped())
        skip_because("over this transport no memory is mapped");
    start(2);
    /* the rows begin at the start of a page, behind directory and keys */
    rig.workers[0].used = 4096 - 128;
    struct rows_asked *push = rows_push(&rig, 0, keys, KEYS, ones);
    rows_settle(&rig);
    rig_break_page(&rig.lanes[0], 0, table_request_rows(&push->request));
    rows_clock(&rig, 0);
    rows_clock(&rig, 1);
    rig_until(&rig.lanes[0], worker(1)->errors_count > 0);
    for (int i = 0; i < KEYS; i++)
        assert_true(isnan(stored_value(keys[i])) || stored_value(keys[i]) == START);
    rows_asked_free(push);
    rows_stop(&rig);
}

/* ---- placing ---- */

static int place(const struct table_terms *terms, const char *name,
                 const struct lane_shard_spec *shards, size_t count)
{
    struct lane_table_spec table = {ROWS_TABLE + 1, name, terms, ROWS_SALT};
    return lane_place_table(rig.lanes[0].lane, RIG_JOB, &table, shards, count);
}

static void terms_and_shards_are_checked(void **state)
{
    const struct lane_shard_spec shards[] = {{0, 1}, {3, 1}}, twice[] = {{3, 1}, {3, 1}};
    const struct lane_shard_spec later[] = {{0, 2}, {3, 1}};
    const struct lane_shard_spec over = {4, 1}, none = {0, 0};
    struct table_terms terms = users;
    start(1);
    assert_int_equal(place(&terms, "items", shards, 0), -EINVAL);
    assert_int_equal(place(&terms, "items", twice, 2), -EINVAL);
    assert_int_equal(place(&terms, "items", &over, 1), -EINVAL);
    assert_int_equal(place(&terms, "items", &none, 1), -EINVAL);
    assert_int_equal(place(&terms, "a/b", shards, 2), -EINVAL);
    terms.dim = 0;
    assert_int_equal(place(&terms, "items", shards, 2), -EINVAL);
    terms = users;
    assert_int_equal(place(&terms, "items", shards, 2), 0);
    assert_int_equal(place(&terms, "items", shards, 2), 0);
    terms.dim++;
    assert_int_equal(place(&terms, "items", shards, 2), -EEXIST);
    terms.dim--;
    assert_int_equal(place(&terms, "items", later, 2), -EEXIST);
    rows_stop(&rig);
}

/* If memory for a part of the table is missing, all other parts must be freed. */
static void a_table_that_does_not_fit_leaves_no_memory(void **state)
{
    const struct lane_shard_spec shards[] = {{0, 1}, {1, 1}, {2, 1}, {3, 1}};
    int error = -EDQUOT;
    rig_start(&rig.lanes[0], "shm");
    struct lane *lane = rig.lanes[0].lane;
    rig.lanes_count = 1;
    assert_int_equal(lane_place(lane, RIG_JOB, "job", 2, 1, false, NULL, 0), 0);
    uint64_t before = lane_job_memory(lane, RIG_JOB), limit = before;
    for (; error == -EDQUOT; limit += 16 << 10) {
        lane_set_job_memory_limit(lane, limit);
        error = place(&users, "items", shards, 4);
        if (error == -EDQUOT)
            assert_int_equal(lane_job_memory(lane, RIG_JOB), before);
    }
    assert_int_equal(error, 0);
    assert_true(limit > before + (1 << 20));
    rig_stop(&rig.lanes[0]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_push_is_applied_when_all_members_have_ended_its_clock),
        cmocka_unit_test(a_pull_waits_for_the_clock_before),
        cmocka_unit_test(a_pull_reads_no_push_of_its_clock),
        cmocka_unit_test(a_pull_of_an_absent_key_creates_nothing),
        cmocka_unit_test(clocks_without_pushes_end_at_once),
        cmocka_unit_test(a_repeated_clock_changes_nothing),
        cmocka_unit_test(a_query_names_the_ranks_behind),
        cmocka_unit_test(clocks_of_a_job_without_pieces_are_its_rounds),
        cmocka_unit_test(settings_count_from_their_clock_on),
        cmocka_unit_test(settings_of_other_ranks_are_ignored),
        cmocka_unit_test(a_gradient_that_is_not_finite_skips_its_row),
        cmocka_unit_test(a_sum_that_overflows_is_an_error_of_all_its_pushes),
        cmocka_unit_test(a_clock_that_a_left_worker_has_not_ended_fails_the_job),
        cmocka_unit_test(a_worker_that_leaves_behind_others_fails_the_job),
        cmocka_unit_test(a_worker_that_leaves_with_its_pushes_fails_the_job),
        cmocka_unit_test(a_worker_may_leave_after_the_clocks_of_all),
        cmocka_unit_test(a_slower_worker_ends_the_clocks_of_one_that_left),
        cmocka_unit_test(a_lost_worker_fails_the_job),
        cmocka_unit_test(rows_whose_pages_are_gone_change_nothing),
        cmocka_unit_test(terms_and_shards_are_checked),
        cmocka_unit_test(a_table_that_does_not_fit_leaves_no_memory),
    };
    rows_set_kind(argc, argv);
    return cmocka_run_group_tests_name(rows_kind, tests, NULL, NULL);
}
