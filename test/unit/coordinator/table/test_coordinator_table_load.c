/* Tests the lane time of tables. The time of tables is part of the lane's load, and is measured for
 * each clock. The lane time of tensors must not include the time of tables, because tensors may
 * move. The lanes' counters are simulated. */
#include "svc/base/clock.h"
#include "svc/wire/table/table_load.h"
#include "test/unit/coordinator/measure_rig.h"

#include <string.h>

#define SHARDS 8u
#define NODE "node7" /* the host of the rig's aggregators */
#define PERIOD_NS (100 * NS_PER_MS)

/* Joins a job of one worker with a table. All its shards are on one lane, because the job has one
 * worker and is not measured. */
static struct trained tables_start(struct rig *rig, const char *name, struct end **ret_worker)
{
    struct trained job = {.reference = TABLE_LOAD_CLOCKS, .begun_ns = 77};
    WIRE(JoinRequest) join;
    envelope request;
    struct end *worker = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    join_request(&request, &join, name, 0, 1);
    join.node = NODE;
    envelope *reply = end_ask(worker, &request);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    job.job = reply->join_reply->job_id;
    message_free(reply);
    end_declare_table(worker, "users", 32, SHARDS);
    reply = end_expect(worker, BODY(DECLARE_REPLY));
    const WIRE(TableRoute) *route = reply->declare_reply->tables[0];
    job.lane = route->shards[0]->lane;
    for (size_t i = 0; i < route->n_shards; i++)
        assert_int_equal(route->shards[i]->lane, job.lane);
    message_free(reply);
    *ret_worker = worker;
    return job;
}

/* Answers 12 requests for counters, with ten clocks between two requests. */
static void tables_run(struct end *aggregator, struct trained *job, uint64_t lane_ns,
                       uint64_t rows_ns)
{
    aggregator->answers = false;
    for (int i = 0; i < 12; i++) {
        job->rows_ns += 10 * rows_ns;
        trained_run(aggregator, job, 1, PERIOD_NS, lane_ns);
    }
    rig_settle(aggregator->rig);
    aggregator->answers = true;
}

static uint32_t lane_of_tensor(struct end *worker, const char *name)
{
    end_declare_one(worker, name, 1000);
    envelope *reply = end_expect(worker, BODY(DECLARE_REPLY));
    uint32_t lane = reply->declare_reply->tensors[0]->pieces[0]->lane;
    message_free(reply);
    return lane;
}

static void a_job_that_has_only_tables_is_measured_by_its_clocks(void **state)
{
    struct rig *rig = *state;
    struct end *worker, *aggregator = rig_aggregator(rig, 2);
    const WIRE(JobView) * view;
    struct trained job = tables_start(rig, "words", &worker);
    /* the rig does not answer other requests, so the coordinator keeps the last counters */
    aggregator->ignores = BODY(STATS_REQUEST);
    tables_run(aggregator, &job, 4 * NS_PER_MS, 4 * NS_PER_MS);
    envelope *reply = measure_ask_job(rig, "words", &view);
    assert_int_equal(view->period_ns, PERIOD_NS);
    assert_in_range(view->lane_ns, 4 * NS_PER_MS - 1000, 4 * NS_PER_MS);
    assert_int_equal(view->use->busy_ns, job.busy_ns);
    message_free(reply);
}

static void a_lane_that_is_busy_with_tables_draws_no_tensors_of_other_jobs(void **state)
{
    struct rig *rig = *state;
    struct end *worker;
    measure_know(rig, 40 * NS_PER_MS, 1, (const char *[]){"resnet"});
    struct end *aggregator = rig_aggregator(rig, 2);
    struct trained job = tables_start(rig, "words", &worker);
    tables_run(aggregator, &job, 40 * NS_PER_MS, 40 * NS_PER_MS);
    assert_int_not_equal(measure_lane_of(rig, "resnet"), job.lane);
}

static void a_lane_with_little_work_on_tables_is_shared(void **state)
{
    struct rig *rig = *state;
    struct end *worker;
    measure_know(rig, 4 * NS_PER_MS, 1, (const char *[]){"resnet"});
    struct end *aggregator = rig_aggregator(rig, 2);
    struct trained job = tables_start(rig, "words", &worker);
    tables_run(aggregator, &job, NS_PER_MS, NS_PER_MS);
    assert_int_equal(measure_lane_of(rig, "resnet"), job.lane);
}

/* The lane time of the tensor is known from an earlier run without tables. */
static void a_lane_that_is_busy_with_tables_draws_no_tensors_of_their_job(void **state)
{
    struct rig *rig = *state;
    struct end *worker;
    measure_know(rig, 40 * NS_PER_MS, 1, (const char *[]){"words"});
    struct end *aggregator = rig_aggregator(rig, 2);
    struct trained job = tables_start(rig, "words", &worker);
    tables_run(aggregator, &job, 90 * NS_PER_MS, 90 * NS_PER_MS);
    assert_int_not_equal(lane_of_tensor(worker, "w"), job.lane);
}

/* Returns the sum of the lane times of the job's tasks in `explain`. */
static uint64_t tasks_ns(struct rig *rig, const char *name)
{
    envelope *reply = measure_ask_why(rig, name);
    const WIRE(ExplainedJob) *job = reply->explain_reply->jobs[0];
    uint64_t sum_ns = 0;
    for (size_t i = 0; i < job->n_tasks; i++)
        sum_ns += job->tasks[i]->lane_ns;
    message_free(reply);
    return sum_ns;
}

static void the_time_of_tables_is_no_time_of_tensors(void **state)
{
    struct rig *rig = *state;
    struct end *worker, *aggregator = rig_aggregator(rig, 1);
    const WIRE(JobView) * view;
    struct trained job = tables_start(rig, "words", &worker);
    assert_int_equal(lane_of_tensor(worker, "w"), job.lane);
    job.reference = 1;
    tables_run(aggregator, &job, 10 * NS_PER_MS, 8 * NS_PER_MS);
    envelope *reply = measure_ask_job(rig, "words", &view);
    assert_in_range(view->lane_ns, 10 * NS_PER_MS - 1000, 10 * NS_PER_MS);
    message_free(reply);
    assert_in_range(tasks_ns(rig, "words"), 2 * NS_PER_MS - 1000, 2 * NS_PER_MS + 1000);
}

/* A request for the times of pieces names one job. The first job has only tables, and so no
 * pieces. */
static void tables_do_not_keep_other_jobs_from_the_measurement_of_their_pieces(void **state)
{
    struct rig *rig = *state;
    struct end *workers[2], *aggregator = rig_aggregator(rig, 2);
    struct trained jobs[] = {tables_start(rig, "words", &workers[0]),
                             trained_start(rig, "resnet", &workers[1])};
    uint32_t asked = 0;
    aggregator->answers = false;
    for (int i = 0; i < 20 && asked != jobs[1].job; i++) {
        for (int k = 0; k < 2; k++)
            trained_go_on(&jobs[k], 10, PERIOD_NS, 4 * NS_PER_MS);
        jobs[0].rows_ns = jobs[0].busy_ns;
        asked = trained_answer(aggregator, jobs, 2);
        assert_int_not_equal(asked, jobs[0].job);
    }
    aggregator->answers = true;
    assert_int_equal(asked, jobs[1].job);
}

int main(void)
{
#define WITH(test) cmocka_unit_test_setup_teardown(test, measure_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        WITH(a_job_that_has_only_tables_is_measured_by_its_clocks),
        WITH(a_lane_that_is_busy_with_tables_draws_no_tensors_of_other_jobs),
        WITH(a_lane_with_little_work_on_tables_is_shared),
        WITH(a_lane_that_is_busy_with_tables_draws_no_tensors_of_their_job),
        WITH(the_time_of_tables_is_no_time_of_tensors),
        WITH(tables_do_not_keep_other_jobs_from_the_measurement_of_their_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
