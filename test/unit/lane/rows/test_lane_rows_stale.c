/* Tests tables with SSP and ASP on a lane. Pushes are applied on arrival. Pulls wait for ranks that
 * are too far behind (SSP), or for no rank (ASP). */
#include "svc/lane/job/table.h"
#include "svc/lane/lane.h"
#include "svc/lane/move/regroup.h"
#include "svc/lane/rows/table.h"
#include "svc/wire/table/table_load.h"
#include "test/unit/lane/rows/rows_case.h"
#include "test/unit/skip.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void start_without_settings(uint32_t consistency, uint32_t staleness, uint32_t workers)
{
    struct table_terms terms = users;
    terms.consistency = consistency;
    terms.staleness = staleness;
    rows_start(&rig, 1, workers, &terms);
}

static void start_with(uint32_t consistency, uint32_t staleness, uint32_t workers)
{
    start_without_settings(consistency, staleness, workers);
    rows_set(&rig, &settings);
}

static struct rows_asked *pull_of(uint32_t rank) { return rows_pull(&rig, rank, keys, KEYS); }

static void waits(const struct rows_asked *asked)
{
    rows_settle(&rig);
    assert_false(rows_is_done(&rig, asked));
}

static void a_push_is_applied_on_arrival(void **state)
{
    start_with(TABLE_TERMS_SSP, 2, 2);
    struct rows_asked *push = rows_push(&rig, 0, keys, KEYS, ones);
    rows_wait(&rig, push);
    rows_asked_free(push);
    assert_int_equal(rows_stored(&rig), KEYS);
    rows_are(pull_of(1), START - 0.25f);
    rows_stop(&rig);
}

static void a_pull_has_the_earlier_pushes_of_its_rank(void **state)
{
    start_with(TABLE_TERMS_ASP, 0, 2);
    for (int i = 0; i < 5; i++)
        push_ones(0);
    rows_are(pull_of(0), START - 5 * 0.25f);
    rows_stop(&rig);
}

static void a_pull_waits_only_for_ranks_beyond_the_staleness(void **state)
{
    start_with(TABLE_TERMS_SSP, 2, 2);
    for (int clock = 0; clock < 3; clock++) {
        rows_are(pull_of(0), START - (float)clock * 0.25f);
        push_ones(0);
        rows_clock(&rig, 0);
    }
    struct rows_asked *pull = pull_of(0);
    waits(pull);
    push_ones(1);
    waits(pull);
    rows_clock(&rig, 1);
    rows_are(pull, START - 4 * 0.25f);
    rows_clock(&rig, 0);
    pull = pull_of(0);
    waits(pull);
    rows_clock(&rig, 1);
    rows_are(pull, START - 4 * 0.25f);
    rows_stop(&rig);
}

/* The last push and the end of its clock arrive together. The lane usually handles pulls before
 * pushes. */
static void a_pull_has_the_pushes_of_all_clocks_that_it_waits_for(void **state)
{
    start_with(TABLE_TERMS_SSP, 1, 3);
    rows_clock(&rig, 0);
    rows_clock(&rig, 0);
    rows_clock(&rig, 1);
    struct rows_asked *pull = pull_of(0);
    waits(pull);
    for (int i = 0; i < 4; i++)
        push_ones(2);
    rows_clock(&rig, 2);
    rows_are(pull, START - 4 * 0.25f);
    rows_stop(&rig);
}

static void a_pull_with_asp_never_waits(void **state)
{
    start_with(TABLE_TERMS_ASP, 0, 2);
    for (int clock = 0; clock < 50; clock++) {
        rows_are(pull_of(0), START - (float)clock * 0.25f);
        push_ones(0);
        rows_clock(&rig, 0);
    }
    rows_settle(&rig); /* the last push is applied */
    rows_are(pull_of(1), START - 50 * 0.25f);
    rows_stop(&rig);
}

static void a_push_of_one_key_changes_its_row_alone(void **state)
{
    float rows[KEYS * DIM];
    start_with(TABLE_TERMS_ASP, 0, 1);
    push_ones(0);
    for (int i = 0; i < 3; i++)
        rows_asked_free(rows_push(&rig, 0, &keys[2], 1, ones));
    struct rows_asked *pull = pull_of(0);
    rows_take(&rig, pull, rows);
    for (int i = 0; i < KEYS * DIM; i++)
        assert_float_equal(rows[i], START - (i / DIM == 2 ? 4 : 1) * 0.25f, 0);
    rows_asked_free(pull);
    rows_stop(&rig);
}

/* ---- settings ---- */

static void a_push_waits_for_the_first_settings(void **state)
{
    start_without_settings(TABLE_TERMS_SSP, 1, 2);
    struct rows_asked *push = rows_push(&rig, 1, keys, KEYS, ones);
    waits(push);
    rows_set(&rig, &settings);
    rows_wait(&rig, push);
    rows_asked_free(push);
    rows_are(pull_of(1), START - 0.25f);
    rows_stop(&rig);
}

static void a_clock_without_settings_fails_the_job(void **state)
{
    start_without_settings(TABLE_TERMS_ASP, 0, 2);
    push_ones(0);
    rows_clock(&rig, 0);
    rows_settle(&rig);
    assert_int_equal(worker(1)->errors_count, 0);
    rows_clock(&rig, 1);
    fails(-EINVAL, "table 'users' of job 'job' has no settings for clock 1");
}

/* A rank that is far ahead changes the settings more often than a lane can store changes. */
static void settings_may_change_in_each_clock_of_a_rank_that_is_ahead(void **state)
{
    const struct row_settings other = {.rate = 0.5};
    start_with(TABLE_TERMS_ASP, 0, 2);
    for (int clock = 0; clock < 200; clock++) {
        rows_clock(&rig, 0);
        rows_set(&rig, clock == 199 ? &other : &settings);
    }
    push_ones(1);
    rows_are(pull_of(1), START - 0.25f);
    push_ones(0);
    rows_are(pull_of(0), START - 0.75f);
    assert_int_equal(worker(1)->errors_count, 0);
    rows_stop(&rig);
}

/* ---- workers that end ---- */

static void a_worker_with_asp_may_leave_behind_others(void **state)
{
    const struct record_leave leave = {.kind = RECORD_LEAVE};
    start_with(TABLE_TERMS_ASP, 0, 3);
    push_ones(2);
    rows_clock(&rig, 0);
    rows_settle(&rig);
    rows_send(&rig, 0, 2, &leave, sizeof leave);
    rows_settle(&rig);
    fabric_disconnect(worker(2)->conn);
    rig_until(&rig.lanes[0], worker(2)->is_closed);
    rows_are(pull_of(0), START - 0.25f);
    assert_int_equal(worker(1)->errors_count, 0);
    rows_stop(&rig);
}

static void a_worker_with_ssp_that_leaves_behind_others_fails_the_job(void **state)
{
    const struct record_leave leave = {.kind = RECORD_LEAVE};
    start_with(TABLE_TERMS_SSP, 5, 3);
    rows_clock(&rig, 0);
    rows_settle(&rig);
    rows_send(&rig, 0, 2, &leave, sizeof leave);
    rows_settle(&rig);
    fabric_disconnect(worker(2)->conn);
    fails(-EPIPE, "rank 2 has left job 'job' before the end of clock 1 of table 'users'");
}

/* The lost worker is the slowest worker, and is still in its first clock. */
static void a_lost_worker_frees_the_minimum(void **state)
{
    start_with(TABLE_TERMS_SSP, 1, 3);
    lane_set_elastic(rig.lanes[0].lane, RIG_JOB);
    struct rows_asked *push = rows_push(&rig, 2, keys, KEYS, ones);
    rows_wait(&rig, push);
    rows_asked_free(push);
    for (int clock = 0; clock < 2; clock++) {
        rows_clock(&rig, 0);
        rows_clock(&rig, 1);
    }
    struct rows_asked *pull = pull_of(0);
    waits(pull);
    fabric_disconnect(worker(2)->conn);
    rows_are(pull, START - 0.25f);
    push_ones(1);
    rows_are(pull_of(1), START - 0.5f);
    assert_int_equal(worker(0)->errors_count, 0);
    rows_stop(&rig);
}

/* Loses a rank that has declared the table, but never connected to the lane. */
static void a_lost_rank_that_never_connected_frees_the_minimum(void **state)
{
    const uint64_t gone[RECORD_MISSING_WORDS] = {1u << 2};
    struct table_terms terms = users;
    terms.consistency = TABLE_TERMS_SSP;
    rows_start_without_last(&rig, 3, &terms);
    lane_set_elastic(rig.lanes[0].lane, RIG_JOB);
    rows_set(&rig, &settings);
    push_ones(0);
    rows_clock(&rig, 0);
    rows_clock(&rig, 1);
    struct rows_asked *pull = pull_of(1);
    waits(pull);
    lane_let_go(rig.lanes[0].lane, RIG_JOB, gone);
    rows_are(pull, START - 0.25f);
    rows_stop(&rig);
}

/* In the middle of a batch, the lane waits for the gradients of a rank whose process does not
 * answer. After the rank is lost, no row may contain these gradients. */
static void a_rank_that_is_lost_while_its_rows_are_read_is_left_out(void **state)
{
    if (rows_are_mapped())
        skip_because("over this transport no gradient is fetched");
    start(3);
    lane_set_elastic(rig.lanes[0].lane, RIG_JOB);
    for (uint32_t rank = 0; rank < 3; rank++)
        push_ones(rank);
    rows_clock(&rig, 2);
    rows_clock(&rig, 0);
    rows_settle(&rig);
    worker(2)->is_stopped = true;
    rows_clock(&rig, 1);
    struct rows_asked *pull = pull_of(0);
    waits(pull);
    assert_int_equal(rows_stored(&rig), 0);
    /* with withdrawn memory no read is answered before the end */
    fabric_withdraw(worker(2)->conn, 0);
    worker(2)->is_stopped = false;
    fabric_disconnect(worker(2)->conn);
    rows_are(pull, START - 0.5f);
    assert_int_equal(worker(0)->errors_count, 0);
    rows_stop(&rig);
}

/* ---- a push that is dropped ---- */

#define WIDE 4096u
#define MANY 300u /* the lane applies 64 rows of this width at a time */

static float wide[MANY * WIDE];

static const struct lane_table *only_table(void)
{
    return table_find(job_find(rig.lanes[0].lane, RIG_JOB), ROWS_TABLE);
}

/* Returns the first element of each row. */
static void take_wide(const uint64_t *many, float *ret_rows)
{
    rows_forget_memory(&rig, 1);
    struct rows_asked *pull = rows_pull(&rig, 1, many, MANY);
    rows_take(&rig, pull, wide);
    rows_asked_free(pull);
    for (uint32_t i = 0; i < MANY; i++)
        ret_rows[i] = wide[i * WIDE];
}

static struct rows_asked *push_wide(uint32_t rank, const uint64_t *many)
{
    for (uint32_t i = 0; i < MANY * WIDE; i++)
        wide[i] = 1;
    return rows_push(&rig, rank, many, MANY, wide);
}

/* The lane has applied a part of the push when its rank is lost. */
static void a_push_after_a_dropped_one_changes_all_its_rows(void **state)
{
    struct table_terms terms = users;
    uint64_t many[MANY];
    float before[MANY], after[MANY];
    for (uint32_t i = 0; i < MANY; i++)
        many[i] = i;
    terms.consistency = TABLE_TERMS_ASP;
    terms.dim = WIDE;
    terms.shards = 1;
    rows_start(&rig, 1, 3, &terms);
    rows_set(&rig, &settings);
    lane_set_elastic(rig.lanes[0].lane, RIG_JOB);
    rows_asked_free(push_wide(2, many));
    rig_until(&rig.lanes[0], only_table()->shards[0]->progress.next > 0);
    fabric_disconnect(worker(2)->conn);
    rig_until(&rig.lanes[0], list_is_empty(&only_table()->queues->pushes));
    assert_int_equal(only_table()->queues->ranks[2].applied, 0);
    take_wide(many, before);
    struct rows_asked *push = push_wide(0, many);
    rows_wait(&rig, push);
    rows_asked_free(push);
    take_wide(many, after);
    for (uint32_t i = 0; i < MANY; i++)
        assert_float_equal(after[i], before[i] - 0.25f, 0);
    rows_stop(&rig);
}

/* ---- load ---- */

static struct lane_job_use measured(void)
{
    struct lane_use use;
    struct lane_job_use job;
    lane_measure(rig.lanes[0].lane, &use, &job, 1);
    return job;
}

static void pushes_are_rounds_until_a_clock_has_ended(void **state)
{
    start_with(TABLE_TERMS_ASP, 0, 1);
    push_ones(0);
    struct rows_asked *push = rows_push(&rig, 0, keys, KEYS, ones);
    rows_wait(&rig, push);
    rows_asked_free(push);
    assert_int_equal(measured().reference, TABLE_LOAD_PUSHES);
    assert_int_equal(measured().begun_rounds, 2);
    rows_clock(&rig, 0);
    rig_until(&rig.lanes[0], measured().reference == TABLE_LOAD_CLOCKS);
    assert_int_equal(measured().begun_rounds, 1);
    rows_stop(&rig);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_push_is_applied_on_arrival),
        cmocka_unit_test(a_pull_has_the_earlier_pushes_of_its_rank),
        cmocka_unit_test(a_pull_waits_only_for_ranks_beyond_the_staleness),
        cmocka_unit_test(a_pull_has_the_pushes_of_all_clocks_that_it_waits_for),
        cmocka_unit_test(a_pull_with_asp_never_waits),
        cmocka_unit_test(a_push_of_one_key_changes_its_row_alone),
        cmocka_unit_test(a_push_waits_for_the_first_settings),
        cmocka_unit_test(a_clock_without_settings_fails_the_job),
        cmocka_unit_test(settings_may_change_in_each_clock_of_a_rank_that_is_ahead),
        cmocka_unit_test(a_worker_with_asp_may_leave_behind_others),
        cmocka_unit_test(a_worker_with_ssp_that_leaves_behind_others_fails_the_job),
        cmocka_unit_test(a_lost_worker_frees_the_minimum),
        cmocka_unit_test(a_rank_that_is_lost_while_its_rows_are_read_is_left_out),
        cmocka_unit_test(a_lost_rank_that_never_connected_frees_the_minimum),
        cmocka_unit_test(a_push_after_a_dropped_one_changes_all_its_rows),
        cmocka_unit_test(pushes_are_rounds_until_a_clock_has_ended),
    };
    rows_set_kind(argc, argv);
    return cmocka_run_group_tests_name(rows_kind, tests, NULL, NULL);
}
