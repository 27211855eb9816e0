/* Tests gradpool_table.h in two workers against the scripted service: rows and gradients by
 * position, order of records, words, errors, lost lanes, late ranks, and refused calls. */
#include "client/lib/job/job_tables.h"
#include "client/lib/job/row_pool.h"
#include "test/unit/client/table_case.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OPEN_MAX 127

/* ---- rows ---- */

static void a_pull_returns_a_row_for_each_position(void **state)
{
    for (uint32_t lanes = 1; lanes <= 2; lanes++) {
        gp_table_spec spec = usual;
        gp_table *table;
        spec.name = lanes == 1 ? "one" : "two";
        use_lanes(0, lanes);
        ok(gp_table_declare(jobs[0], &spec, &table));
        gp_batch *batch = batch_of(table, KEYS);
        pull_and_check(batch, KEYS, 1);
        pull_and_check(batch, KEYS, 1);
        gp_batch_free(batch);
    }
}

static void a_push_adds_up_the_gradients_of_a_key(void **state)
{
    gp_request *request;
    double wanted = 0;
    declare_tables(2);
    gp_batch *batch = batch_of(t[0], KEYS);
    for (uint32_t i = 0; i < KEYS; i++)
        wanted += (double)keys[i] * gradients[i][0];
    ok(gp_push(batch, gradients, &request));
    memset(gradients, 0, sizeof gradients); /* the call has copied the gradients */
    end_clocks();
    ok(gp_wait(request, WAIT_MS));
    script_lock(&rig);
    assert_float_equal(rig.tables.tables[0].pushed, wanted, 0);
    assert_int_equal(rig.tables.tables[0].keys_pushed, KEYS - KEYS / 3);
    script_unlock(&rig);
    gp_batch_free(batch);
}

static void a_push_is_over_after_the_clock_of_every_rank(void **state)
{
    gp_request *request;
    declare_tables(1);
    gp_batch *batch = batch_of(t[0], 10);
    ok(gp_push(batch, gradients, &request));
    failed(gp_wait(request, WAIT_MS), -EDEADLK,
           "table 'users': a push of clock 1 ends after this rank has ended the clock; call ",
           "gp_clock(), then wait again", NULL);
    assert_int_equal(gp_poll(request, 0), 0);
    ok(gp_clock(jobs[0]));
    failed(gp_wait(request, SHORT_MS), -ETIMEDOUT,
           "table 'users' clock 1: no end of clock 1 from rank 1 (in clock 1) after ", NULL);
    ok(gp_clock(jobs[1]));
    ok(gp_wait(request, WAIT_MS));
    gp_batch_free(batch);
}

static void a_pull_waits_for_the_clock_before_its_own(void **state)
{
    gp_request *request;
    declare_tables(2);
    gp_batch *batch = batch_of(t[0], 10);
    pull_and_check(batch, 10, 1);
    ok(gp_clock(jobs[0]));
    ok(gp_pull(batch, rows, &request));
    failed(gp_wait(request, SHORT_MS), -ETIMEDOUT,
           "table 'users' clock 2: no end of clock 1 from rank 1 (in clock 1) after ", NULL);
    ok(gp_clock(jobs[1]));
    ok(gp_wait(request, WAIT_MS));
    check_rows(10, 2);
    gp_batch_free(batch);
}

static void a_batch_without_keys_is_over_at_once(void **state)
{
    gp_batch *batch;
    gp_request *request;
    declare_tables(1);
    ok(gp_batch_create(t[0], NULL, 0, &batch));
    ok(gp_pull(batch, NULL, &request));
    ok(gp_wait(request, WAIT_MS));
    ok(gp_push(batch, NULL, &request));
    ok(gp_wait(request, WAIT_MS));
    ok(gp_push(batch, NULL, NULL));
    gp_batch_free(batch);
    script_lock(&rig);
    assert_int_equal(rig.tables.records_count, 0);
    script_unlock(&rig);
}

/* ---- records ---- */

static void records_reach_a_lane_in_the_order_of_clocks(void **state)
{
    declare_tables(1);
    gp_batch *batch = batch_of(t[0], 10);
    ok(gp_push(batch, gradients, NULL));
    ok(gp_table_set(t[0], &rate));
    ok(gp_clock(jobs[0]));
    ok(gp_push(batch, gradients, NULL));
    ok(gp_clock(jobs[0]));
    const struct script_tables *all = wait_records(5);
    const struct script_table_record *r = all->records;
    assert_int_equal(r[0].kind, RECORD_ROWS);
    assert_int_equal(r[0].rows.clock, 1);
    assert_int_equal(r[1].clock.form, RECORD_CLOCK_SETTINGS);
    assert_int_equal(r[1].clock.clock, 1);
    assert_float_equal(r[1].clock.settings.rate, 0.5, 0);
    assert_int_equal(r[1].clock.settings.table, all->tables[0].number);
    assert_int_equal(r[2].clock.form, RECORD_CLOCK_ENDED);
    assert_int_equal(r[2].clock.clock, 1);
    assert_int_equal(r[2].clock.sequence, 1);
    assert_int_equal(r[2].clock.session, SCRIPT_SESSION);
    assert_int_equal(r[3].rows.clock, 2);
    assert_int_equal(r[3].rows.sequence, 2);
    assert_int_equal(r[4].clock.clock, 2);
    script_unlock(&rig);
    gp_batch_free(batch);
}

static void one_record_ends_the_clock_of_all_tables_of_a_lane(void **state)
{
    gp_table_spec spec = usual;
    declare_tables(1);
    spec.name = "second";
    ok(gp_table_declare(jobs[0], &spec, &t[0]));
    ok(gp_clock(jobs[0]));
    assert_int_equal(wait_records(1)->records[0].clock.count, 2);
    script_unlock(&rig);
}

/* While the test holds the rig's lock, the lane reads nothing, so its queue becomes full. */
static void records_without_room_are_sent_later_in_order(void **state)
{
    uint32_t clocks = 3000;
    declare_tables(1);
    gp_batch *batch = batch_of(t[0], 10);
    script_lock(&rig);
    ok(gp_table_set(t[0], &rate));
    for (uint32_t i = 0; i < clocks; i++) {
        ok(gp_clock(jobs[0]));
        if (i % 100 == 0)
            ok(gp_push(batch, gradients, NULL));
    }
    pthread_mutex_lock(&jobs[0]->lock);
    uint32_t unsent = jobs[0]->unsent;
    pthread_mutex_unlock(&jobs[0]->lock);
    script_unlock(&rig);
    assert_true(unsent > 0);
    const struct script_tables *all = wait_records(1 + clocks + clocks / 100);
    uint64_t clock = 0;
    for (uint32_t i = 1; i < all->records_count; i++) {
        const struct script_table_record *r = &all->records[i];
        if (r->kind == RECORD_ROWS)
            assert_int_equal(r->rows.clock, clock + 1);
        else
            assert_int_equal(r->clock.clock, ++clock);
    }
    script_unlock(&rig);
    assert_int_equal(clock, clocks);
    gp_batch_free(batch);
}

static void a_lane_gets_no_more_requests_than_it_stores(void **state)
{
    gp_request *requests[OPEN_MAX], *request;
    declare_tables(2);
    gp_batch *batch = batch_of(t[0], 10);
    hold_answers(true);
    for (uint32_t i = 0; i < OPEN_MAX; i++)
        ok(gp_pull(batch, rows, &requests[i]));
    failed(gp_pull(batch, rows, &request), -EBUSY,
           "table 'users': a rank may have 127 open requests to a lane, and this rank has as many; "
           "wait for one, or pull rows in each clock",
           NULL);
    hold_answers(false);
    for (uint32_t i = 0; i < OPEN_MAX; i++)
        ok(gp_wait(requests[i], WAIT_MS));
    pull_and_check(batch, 10, 1);
    gp_batch_free(batch);
}

static void memory_of_calls_is_used_again(void **state)
{
    declare_tables(1);
    const struct row_pool *pool = jobs[0]->tables->pool;
    uint64_t most = 0;
    for (uint32_t i = 0; i < 50; i++) {
        gp_batch *batch = batch_of(t[0], KEYS);
        ok(gp_push(batch, gradients, NULL));
        gp_batch_free(batch); /* the push continues although its batch was freed */
        end_clocks();
        gp_batch *next = batch_of(t[0], KEYS);
        pull_and_check(next, KEYS, i + 2);
        gp_batch_free(next);
        if (i == 4)
            most = pool->spare_bytes + pool->used_bytes;
    }
    assert_true(pool->spare_bytes + pool->used_bytes <= 2 * most);
}

/* ---- errors ---- */

static bool has_copied_error(uint32_t rank)
{
    pthread_mutex_lock(&jobs[rank]->lock);
    bool has_error = jobs[rank]->tables->errors->copied.code != 0;
    pthread_mutex_unlock(&jobs[rank]->lock);
    return has_error;
}

static void the_error_of_a_copied_push_comes_from_the_next_clock(void **state)
{
    gp_request *request;
    declare_tables(1);
    gp_batch *batch = batch_of(t[0], 10);
    hold_answers(true);
    ok(gp_push(batch, gradients, NULL));
    end_clocks();
    ok(gp_pull(batch, rows, &request));
    const struct script_tables *all = wait_records(4);
    uint32_t push = 0;
    while (all->records[push].kind != RECORD_ROWS)
        push++; /* the first record may be the message about the end of the other rank's clock */
    script_table_say_error(&rig, push, -EDOM,
                           "table 'users': rows with NaN or infinity skipped: 2");
    script_unlock(&rig);
    while (!has_copied_error(0))
        assert_int_equal(gp_poll(request, 10), 0);
    failed(gp_clock(jobs[0]), -EDOM, "table 'users': rows with NaN or infinity skipped: 2", NULL);
    ok(gp_clock(jobs[0]));
    hold_answers(false);
    ok(gp_wait(request, WAIT_MS));
    gp_batch_free(batch);
}

static void an_error_of_a_lane_ends_the_request(void **state)
{
    gp_request *request;
    declare_tables(1);
    gp_batch *batch = batch_of(t[0], 10);
    hold_answers(true);
    ok(gp_pull(batch, rows, &request));
    wait_records(1);
    script_table_say_error(&rig, 0, -ESTALE, "shard 3 is not on this lane under this epoch");
    script_unlock(&rig);
    failed(gp_wait(request, WAIT_MS), -ESTALE, "table 'users': shard 3 is not on this lane", NULL);
    hold_answers(false);
    pull_and_check(batch, 10, 1);
    gp_batch_free(batch);
}

static void a_lost_lane_fails_its_tables_alone(void **state)
{
    gp_table_spec spec = usual;
    gp_table *other, *both;
    gp_request *request;
    declare_tables(1);
    spec.name = "other";
    use_lanes(1, 1);
    ok(gp_table_declare(jobs[0], &spec, &other));
    spec.name = "both";
    use_lanes(0, 2);
    ok(gp_table_declare(jobs[0], &spec, &both));
    gp_batch *batch = batch_of(both, KEYS), *rest = batch_of(other, KEYS);
    hold_answers(true);
    ok(gp_pull(batch, rows, &request));
    wait_records(2);
    script_kill_lane(&rig, 0);
    script_unlock(&rig);
    failed(gp_wait(request, WAIT_MS), -EOWNERDEAD,
           "table 'both': lane 0 of aggregator 5 on node7 is lost, and with it the rows of shards "
           "0, 2, 4, 6, which have no copy; start the job again",
           NULL);
    failed(gp_pull(batch, rows, &request), -EOWNERDEAD, "table 'both': lane 0 of ", NULL);
    failed(gp_push(batch, gradients, NULL), -EOWNERDEAD, "table 'both': lane 0 of ", NULL);
    failed(gp_table_set(both, &rate), -EOWNERDEAD, "table 'both': lane 0 of ", NULL);
    failed(gp_table_declare(jobs[0], &usual, &both), -EOWNERDEAD, "table 'users': lane 0 of ",
           NULL);
    gp_batch_free(batch);
    hold_answers(false);
    spec.name = "third";
    use_lanes(0, 1);
    failed(gp_table_declare(jobs[0], &spec, &both), -EOWNERDEAD,
           "table 'third': lane 0 is lost, and with it the rows of shards 0, 1, ", NULL);
    use_lanes(1, 1);
    pull_and_check(rest, KEYS, 1);
    ok(gp_clock(jobs[0]));
    gp_batch_free(rest);
}

static void a_failure_from_the_coordinator_ends_the_requests_of_the_table(void **state)
{
    gp_request *request;
    declare_tables(1);
    gp_batch *batch = batch_of(t[0], 10);
    hold_answers(true);
    ok(gp_pull(batch, rows, &request));
    ok(gp_push(batch, gradients, NULL));
    script_lock(&rig);
    script_fail_table(&rig, 99, -EINVAL, "a table that the client does not know");
    script_fail_table(&rig, rig.tables.tables[0].number, -EINVAL, "table 'users': rank 0: dim 3");
    script_unlock(&rig);
    failed(gp_wait(request, WAIT_MS), -EINVAL, "table 'users': rank 0: dim 3", NULL);
    failed(gp_clock(jobs[0]), -EINVAL, "table 'users': rank 0: dim 3", NULL);
    ok(gp_clock(jobs[0]));
    failed(gp_pull(batch, rows, &request), -EINVAL, "table 'users': rank 0: dim 3", NULL);
    gp_batch_free(batch);
    hold_answers(false);
}

static void a_failed_job_ends_all_calls(void **state)
{
    gp_request *request;
    gp_batch *batch;
    declare_tables(1);
    batch = batch_of(t[0], 10);
    hold_answers(true);
    ok(gp_pull(batch, rows, &request));
    script_lock(&rig);
    script_fail_job(&rig, -ECONNRESET, "job 'job': rank 1 is lost");
    script_unlock(&rig);
    failed(gp_wait(request, WAIT_MS), -ECONNRESET, "rank 1 is lost", NULL);
    failed(gp_clock(jobs[0]), -ECONNRESET, "rank 1 is lost", NULL);
    failed(gp_push(batch, gradients, NULL), -ECONNRESET, "rank 1 is lost", NULL);
    gp_batch_free(batch);
}

static void a_request_stays_valid_after_its_job_is_left(void **state)
{
    gp_request *pull, *push;
    declare_tables(1);
    gp_batch *batch = batch_of(t[0], 10);
    hold_answers(true);
    ok(gp_pull(batch, rows, &pull));
    ok(gp_push(batch, gradients, &push));
    ok(gp_push(batch, gradients, NULL));
    gp_job_leave(jobs[0]);
    failed(gp_wait(pull, WAIT_MS), -ECANCELED, "rank 0 left job 'job'", NULL);
    failed(gp_wait(push, WAIT_MS), -ECANCELED, "rank 0 left job 'job'", NULL);
}

static void rig_speaks(void)
{
    script_lock(&rig);
    rig.is_silent = false;
    script_unlock(&rig);
}

static void a_silent_lane_is_named_at_the_deadline(void **state)
{
    gp_request *request;
    declare_tables(1);
    gp_batch *batch = batch_of(t[0], 10);
    hold_answers(true);
    ok(gp_pull(batch, rows, &request));
    failed(gp_wait(request, SHORT_MS), -ETIMEDOUT,
           "table 'users' clock 1: ", "no answer with rows from ",
           "lane 0 of aggregator 5 on node7 yet after ", NULL);
    script_lock(&rig);
    rig.is_silent = true;
    script_unlock(&rig);
    failed(gp_wait(request, SHORT_MS), -ETIMEDOUT,
           "table 'users' clock 1: lane 0 of aggregator 5 on node7 does not answer after ", NULL);
    rig_speaks();
    hold_answers(false);
    ok(gp_wait(request, WAIT_MS));
    end_clocks();
    hold_answers(true);
    ok(gp_pull(batch, rows, &request));
    failed(gp_wait(request, SHORT_MS), -ETIMEDOUT,
           "table 'users' clock 2: every rank has ended clock 1, no answer to this rank from ",
           "lane 0 of aggregator 5 on node7 yet after ", NULL);
    hold_answers(false);
    ok(gp_wait(request, WAIT_MS));
    gp_batch_free(batch);
}

/* ---- refusals ---- */

static void declares_that_cannot_be_served_are_refused(void **state)
{
    gp_table *table;
    gp_table_spec spec = usual;
    failed(gp_table_declare(jobs[0], NULL, &table), -EINVAL,
           "gp_table_declare: spec or ret_table is NULL; pass both", NULL);
    spec.name = NULL;
    failed(gp_table_declare(jobs[0], &spec, &table), -EINVAL,
           "the table has no name; set gp_table_spec.name", NULL);
    spec.name = "a/b";
    failed(gp_table_declare(jobs[0], &spec, &table), -EINVAL, "table 'a/b': the name has a '/'",
           NULL);
    spec = usual;
    spec.dim = 0;
    failed(gp_table_declare(jobs[0], &spec, &table), -EINVAL,
           "table 'users': dim is 0; set dim to 1 to 4096", NULL);
    failed(gp_clock(jobs[0]), -EINVAL, "job 'job' has no table; call gp_table_declare() first",
           NULL);
    declare_tables(1);
    ok(gp_table_declare(jobs[0], &usual, &table));
    assert_ptr_equal(table, t[0]);
    spec.dim = 4;
    failed(gp_table_declare(jobs[0], &spec, &table), -EEXIST,
           "table 'users' was declared before with dim 3, ", ", now with dim 4, ",
           "; choose another name for this table", NULL);
    ok(gp_clock(jobs[0]));
    spec.name = "late";
    failed(gp_table_declare(jobs[0], &spec, &table), -EBUSY,
           "table 'late': this rank has ended clock 1 of its tables; declare all tables before the "
           "first gp_clock()",
           NULL);
}

static void a_refusal_of_the_coordinator_is_returned(void **state)
{
    gp_table *table;
    script_lock(&rig);
    rig.declare_failure = -EOPNOTSUPP;
    rig.declare_text = "table 'users': consistency ssp is not served yet";
    script_unlock(&rig);
    failed(gp_table_declare(jobs[0], &usual, &table), -EOPNOTSUPP,
           "table 'users': consistency ssp is not served yet", NULL);
    script_lock(&rig);
    rig.declare_failure = 0;
    script_unlock(&rig);
    declare_tables(1);
}

static void keys_and_settings_outside_their_limits_are_refused(void **state)
{
    gp_table_spec spec = usual;
    gp_table *small;
    gp_batch *batch;
    gp_row_settings settings = {.rate = NAN};
    gp_request *request;
    declare_tables(1);
    spec.name = "small";
    spec.keys = 5;
    ok(gp_table_declare(jobs[0], &spec, &small));
    failed(gp_batch_create(small, (uint64_t[]){1, 4, 5}, 3, &batch), -EINVAL,
           "table 'small': key 5 at position 2 is too large; the table has keys below 5", NULL);
    failed(gp_batch_create(small, keys, SIZE_MAX, &batch), -E2BIG, "table 'small': a batch has ",
           " keys, but a lane of this job stores requests for at most 127 x 1048576 keys of a "
           "rank; make several batches",
           NULL);
    failed(gp_batch_create(small, NULL, 3, &batch), -EINVAL,
           "gp_batch_create: keys or ret_batch is NULL; pass both", NULL);
    failed(gp_batch_create(NULL, keys, 3, &batch), -EINVAL,
           "the table is NULL; pass the table of gp_table_declare()", NULL);
    failed(gp_table_set(t[0], &settings), -EINVAL, "table 'users': rule sgd",
           " does not allow this value of ", "rate; see gp_row_settings", NULL);
    failed(gp_table_set(t[0], NULL), -EINVAL,
           "table 'users': the settings are NULL; pass a gp_row_settings", NULL);
    failed(gp_table_export(t[0], NULL), -EINVAL,
           "table 'users': the path of gp_table_export() is NULL; pass the path of a file", NULL);
    failed(gp_pull(NULL, rows, &request), -EINVAL,
           "the batch is NULL; pass a batch of gp_batch_create()", NULL);
    batch = batch_of(t[0], 10);
    failed(gp_pull(batch, NULL, &request), -EINVAL,
           "table 'users': the argument rows of gp_pull() is NULL; pass a place for the rows",
           NULL);
    failed(gp_pull(batch, rows, NULL), -EINVAL,
           "table 'users': the argument ret_request of gp_pull() is NULL; pass a place for the "
           "request",
           NULL);
    failed(gp_push(batch, NULL, &request), -EINVAL,
           "table 'users': the gradients of gp_push() are NULL; pass a row for each key", NULL);
    gp_batch_free(batch);
    gp_batch_free(NULL);
}

int main(void)
{
#define WITH(test) cmocka_unit_test_setup_teardown(test, fixture_start, fixture_stop)
    const struct CMUnitTest tests[] = {
        WITH(a_pull_returns_a_row_for_each_position),
        WITH(a_push_adds_up_the_gradients_of_a_key),
        WITH(a_push_is_over_after_the_clock_of_every_rank),
        WITH(a_pull_waits_for_the_clock_before_its_own),
        WITH(a_batch_without_keys_is_over_at_once),
        WITH(records_reach_a_lane_in_the_order_of_clocks),
        WITH(one_record_ends_the_clock_of_all_tables_of_a_lane),
        WITH(records_without_room_are_sent_later_in_order),
        WITH(a_lane_gets_no_more_requests_than_it_stores),
        WITH(memory_of_calls_is_used_again),
        WITH(the_error_of_a_copied_push_comes_from_the_next_clock),
        WITH(an_error_of_a_lane_ends_the_request),
        WITH(a_lost_lane_fails_its_tables_alone),
        WITH(a_failure_from_the_coordinator_ends_the_requests_of_the_table),
        WITH(a_failed_job_ends_all_calls),
        WITH(a_request_stays_valid_after_its_job_is_left),
        WITH(a_silent_lane_is_named_at_the_deadline),
        WITH(declares_that_cannot_be_served_are_refused),
        WITH(a_refusal_of_the_coordinator_is_returned),
        WITH(keys_and_settings_outside_their_limits_are_refused),
    };
    return cmocka_run_group_tests(tests, fixture_clear, NULL);
}
