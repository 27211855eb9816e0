/* Tests the measurement of a job that shares its lane with other jobs, and lane times in views
 * (K15, K16). The aggregators and their times are simulated. */
#include "svc/base/clock.h"
#include "svc/coordinator/aggregator/busy_time.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/measure/measure.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/store/store.h"
#include "test/unit/coordinator/measure_rig.h"

/* Two jobs that train on one lane from the start. */
struct company {
    struct end *workers[2];
    struct trained jobs[2];
};

static struct company train_together(struct rig *rig, struct end *aggregator)
{
    struct company c;
    c.jobs[0] = trained_start(rig, "resnet", &c.workers[0]);
    c.jobs[1] = trained_start(rig, "gpt", &c.workers[1]);
    assert_int_equal(c.jobs[0].lane, c.jobs[1].lane);
    aggregator->answers = false;
    for (int i = 0; i < 12; i++) {
        trained_go_on(&c.jobs[0], 10, 125 * NS_PER_MS, 4 * NS_PER_MS);
        trained_go_on(&c.jobs[1], 10, 110 * NS_PER_MS, 4 * NS_PER_MS);
        trained_answer(aggregator, c.jobs, 2);
    }
    aggregator->answers = true;
    rig_settle(rig);
    return c;
}

static int look_for_alone(void *context, const struct store_row *row)
{
    uint64_t *counts = context;
    counts[0] += row->table == STORE_PROFILE && row->profile.is_alone == 0;
    counts[1] += row->table == STORE_PROFILE && row->profile.is_alone != 0;
    return 0;
}

static void a_measurement_beside_other_jobs_never_counts_as_alone(void **state)
{
    struct rig *rig = *state;
    struct store *store;
    struct err err;
    uint64_t counts[2] = {0};
    const WIRE(JobView) * view;
    struct company c = train_together(rig, rig_aggregator(rig, 1));
    envelope *reply = measure_ask_job(rig, "resnet", &view);
    assert_int_equal(view->period_ns, 125 * NS_PER_MS);
    assert_int_equal(view->alone_period_ns, 0);
    message_free(reply);
    end_leave(c.workers[0]);
    end_leave(c.workers[1]);
    rig_settle(rig);
    rig_crash(rig);
    measure_open_store(rig, &store);
    assert_int_equal(store_load(store, look_for_alone, counts, &err), 0);
    store_close(store);
    assert_int_equal(counts[0], 2);
    assert_int_equal(counts[1], 0);
    rig_start(rig);
    rig_aggregator(rig, 1);
    struct trained again = trained_start(rig, "resnet", &c.workers[0]);
    reply = measure_ask_job(rig, "resnet", &view);
    assert_int_equal(view->alone_period_ns, 0);
    message_free(reply);
    const struct job *job = jobs_find_id(rig->coordinator->service, again.job);
    /* placement uses this value */
    assert_int_equal(profile_known(job->profile).period_ns, 125 * NS_PER_MS);
}

/* The second job leaves between two measurements. The counters of this interval cover time with and
 * without the second job. */
static void a_window_with_a_shared_part_does_not_count_as_alone(void **state)
{
    struct rig *rig = *state;
    struct end *aggregator = rig_aggregator(rig, 1);
    struct company c = train_together(rig, aggregator);
    const struct job *job = jobs_find_id(rig->coordinator->service, c.jobs[0].job);
    end_leave(c.workers[1]);
    rig_settle(rig);
    aggregator->answers = false;
    uint32_t shared = 0, looks = 0;
    while (!profile_knows_alone(job->profile)) {
        assert_true(looks++ < 60);
        uint64_t before = job->profile->rounds;
        trained_run(aggregator, &c.jobs[0], 1, 100 * NS_PER_MS, 4 * NS_PER_MS);
        rig_settle(rig);
        shared += job->profile->rounds > before && !job->profile->is_alone;
    }
    assert_true(shared >= 1);
    assert_int_equal(job->profile->alone.period_ns, 100 * NS_PER_MS);
    aggregator->answers = true;
}

/* Two jobs need 4 and 2 ms in each round. The lane had its core half of the time. */
static void jobs_use_no_more_time_than_their_lane_has(void **state)
{
    struct rig *rig = *state;
    struct end *aggregator = rig_aggregator(rig, 1), *workers[2];
    struct trained jobs[2];
    uint64_t busy_ns = 0, cpu_ns = 0;
    const WIRE(JobView) * view;
    jobs[0] = trained_start(rig, "a", &workers[0]);
    jobs[1] = trained_start(rig, "b", &workers[1]);
    aggregator->answers = false;
    for (uint64_t i = 0; i < 8; i++) {
        trained_go_on(&jobs[0], 10, 100 * NS_PER_MS, 4 * NS_PER_MS);
        trained_go_on(&jobs[1], 10, 100 * NS_PER_MS, 2 * NS_PER_MS);
        jobs[0].preempted_ns += (i % 3) * 15 * NS_PER_MS;
        trained_answer(aggregator, jobs, 2);
    }
    rig_settle(rig);
    const struct lane *lane = lane_find(rig->coordinator->service, jobs[0].lane);
    for (int i = 0; i < 2; i++)
        busy_ns += stats_of_job(lane, jobs[i].job)->busy_ns;
    cpu_ns = stats_of_lane(lane)->cpu_ns;
    assert_int_equal(cpu_ns, jobs[0].busy_ns + jobs[1].busy_ns - jobs[0].preempted_ns);
    assert_in_range(busy_ns, cpu_ns - 1000, cpu_ns);
    envelope *reply = measure_ask_job(rig, "a", &view);
    assert_in_range(view->use->busy_ns, cpu_ns * 2 / 3 - 1000, cpu_ns * 2 / 3);
    message_free(reply);
}

/* Simulates a window in which another process used the core. The clock of the lane's thread shows
 * this only in a later window. */
static void one_odd_window_changes_no_lane_time_and_parts_make_the_whole(void **state)
{
    struct rig *rig = *state;
    struct end *aggregator = rig_aggregator(rig, 1), *worker;
    struct trained a = trained_start(rig, "a", &worker);
    aggregator->answers = false;
    trained_run(aggregator, &a, 12, 100 * NS_PER_MS, NS_PER_MS);
    trained_run(aggregator, &a, 1, 100 * NS_PER_MS, 20 * NS_PER_MS);
    trained_run(aggregator, &a, 1, 100 * NS_PER_MS, NS_PER_MS);
    aggregator->answers = true;
    rig_settle(rig);
    envelope *reply = measure_ask_why(rig, "a");
    const WIRE(ExplainedJob) *job = reply->explain_reply->jobs[0];
    assert_int_equal(job->lanes[0]->lane_ns, NS_PER_MS);
    assert_int_equal(job->job->lane_ns, NS_PER_MS);
    assert_int_equal(job->n_tasks, 1);
    assert_int_equal(job->tasks[0]->lane_ns, NS_PER_MS);
    message_free(reply);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, measure_setup, rig_teardown)

int main(void)
{
    static const struct CMUnitTest cases[] = {
        CASE(a_measurement_beside_other_jobs_never_counts_as_alone),
        CASE(a_window_with_a_shared_part_does_not_count_as_alone),
        CASE(jobs_use_no_more_time_than_their_lane_has),
        CASE(one_odd_window_changes_no_lane_time_and_parts_make_the_whole),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
