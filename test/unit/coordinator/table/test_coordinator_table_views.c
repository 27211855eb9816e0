/* Tests the views of a job's tables for operators: the terms of the tables, and the sums of the
 * lanes' counts. The lanes are simulated. */
#include "svc/coordinator/aggregator/busy_time.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/table/views.h"
#include "test/unit/coordinator/measure_rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LANES 2
#define SHARDS 8
#define ROWS_MOST UINT64_C(1000000000000)

static uint64_t takes_left; /* number of calls of take() that succeed before the first failure */

static void *take(void *context, size_t bytes)
{
    (void)context;
    return takes_left-- > 0 ? calloc(1, bytes) : NULL;
}

static struct job *only_job(struct rig *rig)
{
    return list_entry(rig->coordinator->service->jobs.next, struct job, link);
}

/* Starts a job of two ranks with a table, whose shards are on both lanes. */
static struct job *job_of(struct rig *rig)
{
    uint64_t session;
    uint32_t id;
    struct end *aggregator = rig_aggregator(rig, LANES);
    struct end *ranks[] = {rig_join(rig, "words", 0, 2, &session, &id),
                           rig_join(rig, "words", 1, 2, &session, &id)};
    aggregator->ignores = BODY(STATS_REQUEST);
    end_declare_table(ranks[0], "users", 32, SHARDS);
    end_declare_table(ranks[1], "users", 32, SHARDS);
    message_free(end_expect(ranks[0], BODY(DECLARE_REPLY)));
    struct job *job = only_job(rig);
    struct aggregator *a =
        list_entry(rig->coordinator->service->aggregators.next, struct aggregator, link);
    for (size_t i = 0; i < LANES; i++)
        assert_non_null(jobs_share(job, &a->lanes[i]));
    takes_left = UINT64_MAX;
    return job;
}

static WIRE(TableCounts) lane_counts(const struct job *job, uint64_t rows)
{
    WIRE(TableCounts) counts = GRADPOOL__WIRE__TABLE_COUNTS__INIT;
    job_each_table(table, job) counts.table = table->id;
    counts.rows = counts.births = rows;
    counts.bytes = 100 * rows;
    counts.pulled_keys = 3 * rows;
    counts.pushed_keys = 2 * rows;
    counts.minimum_clock = counts.largest_clock = 1;
    counts.shards = SHARDS / LANES;
    return counts;
}

/* Stores an answer in which each lane has these counts. */
static void lanes_send(struct job *job, WIRE(TableCounts) * each)
{
    struct aggregator *a = job->shares[0].lane->aggregator;
    WIRE(StatsReply) stats = GRADPOOL__WIRE__STATS_REPLY__INIT;
    WIRE(LaneUse) lanes[LANES], *lane_list[LANES];
    WIRE(JobUse) jobs[LANES], *job_list[LANES];
    WIRE(TableCounts) * tables[LANES];
    envelope reply = GRADPOOL__WIRE__ENVELOPE__INIT;
    for (size_t i = 0; i < LANES; i++) {
        gradpool__wire__lane_use__init(&lanes[i]);
        gradpool__wire__job_use__init(&jobs[i]);
        tables[i] = &each[i];
        job_list[i] = &jobs[i];
        lane_list[i] = &lanes[i];
        jobs[i].job_id = job->id;
        jobs[i].tables = &tables[i];
        jobs[i].n_tables = 1;
        lanes[i].lane = a->lanes[i].id;
        lanes[i].jobs = &job_list[i];
        lanes[i].n_jobs = 1;
    }
    stats.lanes = lane_list;
    stats.n_lanes = LANES;
    reply.body_case = BODY(STATS_REPLY);
    reply.stats_reply = &stats;
    assert_true(stats_keep(a, &reply));
}

/* Returns the views of the job's tables. The caller frees them. */
static WIRE(JobView) * views_of(const struct job *job)
{
    WIRE(JobView) *view = malloc(sizeof *view);
    gradpool__wire__job_view__init(view);
    size_t bytes_left = TABLE_VIEWS_BYTES_MAX;
    assert_true(table_views_add(job, take, NULL, &bytes_left, view));
    assert_int_equal(view->n_tables, 1);
    return view;
}

static void a_table_is_shown_before_any_lane_has_sent_counts(void **state)
{
    WIRE(JobView) *view = views_of(job_of(*state));
    assert_string_equal(view->tables[0]->spec->name, "users");
    assert_int_equal(view->tables[0]->spec->dim, 32);
    assert_int_equal(view->tables[0]->spec->shards, 8);
    assert_string_equal(view->tables[0]->failure, "");
    assert_null(view->tables[0]->counts);
    gradpool__wire__job_view__free_unpacked(view, NULL);
}

static void counts_are_sums_over_the_lanes(void **state)
{
    struct job *job = job_of(*state);
    WIRE(TableCounts) each[] = {lane_counts(job, 10), lane_counts(job, ROWS_MOST)};
    lanes_send(job, each);
    WIRE(JobView) *view = views_of(job);
    const WIRE(TableCounts) *counts = view->tables[0]->counts;
    assert_int_equal(counts->rows, ROWS_MOST + 10);
    assert_int_equal(counts->births, ROWS_MOST + 10);
    assert_int_equal(counts->bytes, 100 * (ROWS_MOST + 10));
    assert_int_equal(counts->pulled_keys, 3 * (ROWS_MOST + 10));
    assert_int_equal(counts->pushed_keys, 2 * (ROWS_MOST + 10));
    gradpool__wire__job_view__free_unpacked(view, NULL);
}

static void the_lane_with_the_smallest_minimum_names_the_rank(void **state)
{
    struct job *job = job_of(*state);
    WIRE(TableCounts) each[] = {lane_counts(job, 1), lane_counts(job, 1)};
    each[0].minimum_clock = 7;
    each[0].largest_clock = 8;
    each[1].minimum_clock = 6;
    each[1].largest_clock = 7;
    each[1].behind_rank = 1;
    lanes_send(job, each);
    WIRE(JobView) *view = views_of(job);
    assert_int_equal(view->tables[0]->counts->minimum_clock, 6);
    assert_int_equal(view->tables[0]->counts->largest_clock, 8);
    assert_int_equal(view->tables[0]->counts->behind_rank, 1);
    gradpool__wire__job_view__free_unpacked(view, NULL);
}

static void counts_of_unknown_tables_and_ranks_are_ignored(void **state)
{
    struct job *job = job_of(*state);
    WIRE(TableCounts) each[] = {lane_counts(job, 10), lane_counts(job, 20)};
    each[0].table += 1;
    each[1].behind_rank = 2;
    lanes_send(job, each);
    WIRE(JobView) *view = views_of(job);
    assert_null(view->tables[0]->counts);
    gradpool__wire__job_view__free_unpacked(view, NULL);
}

/* An aggregator with many tables omits rows of its last lane. */
static void counts_of_a_part_of_the_lanes_are_not_shown(void **state)
{
    struct job *job = job_of(*state);
    WIRE(TableCounts) each[] = {lane_counts(job, 10), lane_counts(job, 20)};
    each[1].table += 1;
    lanes_send(job, each);
    WIRE(JobView) *view = views_of(job);
    assert_null(view->tables[0]->counts);
    gradpool__wire__job_view__free_unpacked(view, NULL);
}

static void tables_beyond_a_message_are_counted(void **state)
{
    const struct job *job = job_of(*state);
    for (size_t room = 0; room < 2; room++) {
        WIRE(JobView) *view = malloc(sizeof *view);
        size_t bytes_left = room;
        gradpool__wire__job_view__init(view);
        assert_true(table_views_add(job, take, NULL, &bytes_left, view));
        assert_int_equal(view->n_tables, room);
        assert_int_equal(view->tables_left_out, 1 - room);
        assert_int_equal(bytes_left, 0);
        gradpool__wire__job_view__free_unpacked(view, NULL);
    }
}

static void a_failed_table_is_shown_with_its_reason(void **state)
{
    struct job *job = job_of(*state);
    job_each_table(table, job) job_table_fail(table, NULL, -EOWNERDEAD, "its lane is gone");
    kept_log_expect("its lane is gone");
    WIRE(JobView) *view = views_of(job);
    assert_string_equal(view->tables[0]->failure, "its lane is gone");
    gradpool__wire__job_view__free_unpacked(view, NULL);
}

static void missing_memory_leaves_a_view_that_can_be_freed(void **state)
{
    struct job *job = job_of(*state);
    WIRE(TableCounts) each[] = {lane_counts(job, 10), lane_counts(job, 20)};
    lanes_send(job, each);
    bool is_whole = false;
    for (uint64_t takes = 0; !is_whole; takes++) {
        WIRE(JobView) *view = malloc(sizeof *view);
        gradpool__wire__job_view__init(view);
        takes_left = takes;
        size_t bytes_left = TABLE_VIEWS_BYTES_MAX;
        is_whole = table_views_add(job, take, NULL, &bytes_left, view);
        assert_int_equal(is_whole, takes == 7);
        gradpool__wire__job_view__free_unpacked(view, NULL);
    }
}

#define test(name) cmocka_unit_test_setup_teardown(name, measure_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(a_table_is_shown_before_any_lane_has_sent_counts),
        test(counts_are_sums_over_the_lanes),
        test(the_lane_with_the_smallest_minimum_names_the_rank),
        test(counts_of_unknown_tables_and_ranks_are_ignored),
        test(counts_of_a_part_of_the_lanes_are_not_shown),
        test(tables_beyond_a_message_are_counted),
        test(a_failed_table_is_shown_with_its_reason),
        test(missing_memory_leaves_a_view_that_can_be_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
