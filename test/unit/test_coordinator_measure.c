/* What the coordinator makes of the figures that lanes give: K15. The aggregators are scripted, and
 * so is their time. */
#include "svc/base/clock.h"
#include "test/unit/coordinator_rig.h"

#include <string.h>

#define LOOK_NS (5 * NS_PER_MS)

/* A job on one lane, as that lane counts. */
struct trained {
    uint32_t job, lane, reference;
    uint64_t rounds, begun_ns, busy_ns;
};

static int setup(void **state)
{
    rig_setup(state);
    struct rig *rig = *state;
    rig->options.measure_ns = LOOK_NS;
    rig_start_afresh(rig);
    return 0;
}

static void train(struct trained *t, uint64_t rounds, uint64_t period_ns, uint64_t lane_ns)
{
    t->rounds += rounds;
    t->begun_ns += rounds * period_ns;
    t->busy_ns += rounds * lane_ns;
}

/* Answers the next request for figures. */
static void answer(struct end *aggregator, const struct trained *jobs, size_t count)
{
    WIRE(StatsReply) stats = GRADPOOL__WIRE__STATS_REPLY__INIT;
    WIRE(LaneUse) lanes[4], *lane_list[4];
    WIRE(JobUse) uses[4], *use_list[4];
    envelope reply = GRADPOOL__WIRE__ENVELOPE__INIT;
    envelope *request = end_expect(aggregator, BODY(STATS_REQUEST));
    reply.id = request->id;
    message_free(request);
    for (size_t i = 0; i < count; i++) {
        gradpool__wire__job_use__init(&uses[i]);
        uses[i].job_id = jobs[i].job;
        uses[i].reference = jobs[i].reference;
        uses[i].begun_rounds = jobs[i].rounds;
        uses[i].begun_ns = jobs[i].begun_ns;
        uses[i].busy_ns = jobs[i].busy_ns;
        use_list[i] = &uses[i];
        gradpool__wire__lane_use__init(&lanes[i]);
        lanes[i].lane = jobs[i].lane;
        lanes[i].jobs = &use_list[i];
        lanes[i].n_jobs = 1;
        lane_list[i] = &lanes[i];
    }
    stats.lanes = lane_list;
    stats.n_lanes = count;
    reply.body_case = BODY(STATS_REPLY);
    reply.stats_reply = &stats;
    channel_send(aggregator->channel, &reply);
}

/* So many looks, ten rounds between two. */
static void run(struct end *aggregator, struct trained *job, int looks, uint64_t period_ns,
                uint64_t lane_ns)
{
    for (int i = 0; i < looks; i++) {
        train(job, 10, period_ns, lane_ns);
        answer(aggregator, job, 1);
    }
}

/* A job of one worker with one tensor, which lies on the lane that it names. */
static struct trained start(struct rig *rig, const char *name, struct end **ret_worker)
{
    struct trained job = {.reference = 1, .begun_ns = 77};
    uint64_t session;
    *ret_worker = rig_join(rig, name, 0, 1, &session, &job.job);
    end_declare_one(*ret_worker, "w", 1000);
    envelope *reply = end_expect(*ret_worker, BODY(DECLARE_REPLY));
    job.lane = reply->declare_reply->tensors[0]->pieces[0]->lane;
    message_free(reply);
    return job;
}

/* The caller frees the reply. */
static envelope *ask_job(struct rig *rig, const char *name, const WIRE(JobView) * *ret_view)
{
    struct end *asking = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    WIRE(JobsRequest) jobs = GRADPOOL__WIRE__JOBS_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    jobs.job = (char *)name;
    request.body_case = BODY(JOBS_REQUEST);
    request.jobs_request = &jobs;
    envelope *reply = end_ask(asking, &request);
    assert_int_equal(reply->body_case, BODY(JOBS_REPLY));
    assert_int_equal(reply->jobs_reply->n_jobs, 1);
    *ret_view = reply->jobs_reply->jobs[0];
    return reply;
}

static void a_job_that_trains_is_measured(void **state)
{
    struct rig *rig = *state;
    struct end *worker, *aggregator = rig_aggregator(rig, 2);
    const WIRE(JobView) * view;
    struct trained job = start(rig, "resnet", &worker);
    envelope *reply = ask_job(rig, "resnet", &view);
    assert_int_equal(view->period_ns, 0);
    message_free(reply);
    aggregator->answers = false;
    run(aggregator, &job, 12, 100 * NS_PER_MS, 4 * NS_PER_MS);
    aggregator->answers = true;
    rig_settle(rig);
    reply = ask_job(rig, "resnet", &view);
    assert_int_equal(view->period_ns, 100 * NS_PER_MS);
    assert_int_equal(view->alone_period_ns, 100 * NS_PER_MS);
    assert_in_range(view->lane_ns, 4 * NS_PER_MS - 1000, 4 * NS_PER_MS);
    assert_int_equal(view->loss_ppm, 0);
    message_free(reply);
}

static void what_a_lane_forgot_is_not_measured_across(void **state)
{
    struct rig *rig = *state;
    struct end *worker, *aggregator = rig_aggregator(rig, 1);
    const WIRE(JobView) * view;
    struct trained job = start(rig, "resnet", &worker);
    aggregator->answers = false;
    run(aggregator, &job, 12, 100 * NS_PER_MS, 4 * NS_PER_MS);
    for (int i = 0; i < 6; i++) {
        job.reference++; /* its rounds are counted anew, at any number */
        job.rounds += 1000;
        answer(aggregator, &job, 1);
        job.rounds = job.busy_ns = 0;
        answer(aggregator, &job, 1);
    }
    aggregator->answers = true;
    rig_settle(rig);
    envelope *reply = ask_job(rig, "resnet", &view);
    assert_int_equal(view->period_ns, 100 * NS_PER_MS);
    message_free(reply);
}

static void what_it_loses_beside_another_is_told(void **state)
{
    struct rig *rig = *state;
    struct end *workers[2], *aggregator = rig_aggregator(rig, 1);
    const WIRE(JobView) * view;
    struct trained job = start(rig, "resnet", &workers[0]);
    aggregator->answers = false;
    run(aggregator, &job, 12, 100 * NS_PER_MS, 4 * NS_PER_MS);
    aggregator->answers = true;
    struct trained other = start(rig, "gpt", &workers[1]);
    assert_int_equal(other.lane, job.lane);
    aggregator->answers = false;
    run(aggregator, &job, 12, 125 * NS_PER_MS, 4 * NS_PER_MS);
    aggregator->answers = true;
    rig_settle(rig);
    envelope *reply = ask_job(rig, "resnet", &view);
    assert_int_equal(view->alone_period_ns, 100 * NS_PER_MS);
    assert_int_equal(view->period_ns, 125 * NS_PER_MS);
    assert_in_range(view->loss_ppm, 199900, 200000);
    message_free(reply);
}

static void without_jobs_nobody_is_asked(void **state)
{
    struct rig *rig = *state;
    struct end *worker, *aggregator = rig_aggregator(rig, 1);
    aggregator->answers = false;
    end_expect_none(aggregator, BODY(STATS_REQUEST));
    aggregator->answers = true;
    start(rig, "resnet", &worker);
    aggregator->answers = false;
    message_free(end_expect(aggregator, BODY(STATS_REQUEST)));
    aggregator->answers = true;
    end_leave(worker);
    rig_settle(rig);
    aggregator->answers = false;
    for (size_t i = aggregator->inbox_count; i > 0; i--)
        message_free(aggregator->inbox[i - 1]);
    aggregator->inbox_count = 0;
    end_expect_none(aggregator, BODY(STATS_REQUEST));
}

/* The wait doubles while nothing trains, up to eight times the least. */
static void jobs_that_do_nothing_are_asked_about_less_often(void **state)
{
    struct rig *rig = *state;
    struct end *worker, *aggregator = rig_aggregator(rig, 1);
    struct trained job = start(rig, "resnet", &worker);
    aggregator->answers = false;
    for (int i = 0; i < 5; i++)
        answer(aggregator, &job, 1);
    uint64_t began_ns = clock_now_ns();
    for (int i = 0; i < 3; i++)
        answer(aggregator, &job, 1);
    assert_true(clock_now_ns() - began_ns >= 2 * 8 * LOOK_NS);
    aggregator->answers = true;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, rig_teardown)

int main(void)
{
    static const struct CMUnitTest cases[] = {
        CASE(a_job_that_trains_is_measured),
        CASE(what_a_lane_forgot_is_not_measured_across),
        CASE(what_it_loses_beside_another_is_told),
        CASE(without_jobs_nobody_is_asked),
        CASE(jobs_that_do_nothing_are_asked_about_less_often),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
