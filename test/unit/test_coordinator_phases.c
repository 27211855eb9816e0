/* When the bursts of jobs come, as lanes tell it, people are shown it and the packer counts on it:
 * K36. The aggregators are scripted, and so is their time. */
#include "svc/base/clock.h"
#include "test/unit/measure_rig.h"

#define PERIOD_NS (100 * NS_PER_MS)
#define LANE_NS (30 * NS_PER_MS)
#define SPAN_NS (32 * NS_PER_MS)

/* What is told of a job: its phase, and what it is to lose where it is. */
struct told {
    uint64_t begun_ns, window_ns;
    uint32_t predicted_ppm;
};

static struct told ask(struct rig *rig, const char *name)
{
    struct end *asking = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    WIRE(ExplainRequest) explain = GRADPOOL__WIRE__EXPLAIN_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    explain.job = (char *)name;
    request.body_case = BODY(EXPLAIN_REQUEST);
    request.explain_request = &explain;
    envelope *reply = end_ask(asking, &request);
    assert_int_equal(reply->body_case, BODY(EXPLAIN_REPLY));
    const WIRE(ExplainedJob) *job = reply->explain_reply->jobs[0];
    struct told told = {.begun_ns = job->burst_begun_ns,
                        .window_ns = job->burst_window_ns,
                        .predicted_ppm = job->job->predicted_loss_ppm};
    message_free(reply);
    return told;
}

static struct end *local(struct rig *rig, uint32_t lanes)
{
    return rig_local_aggregator(rig, lanes, "");
}

static struct trained start(struct rig *rig, const char *name)
{
    struct end *worker;
    struct trained job = trained_start(rig, name, &worker);
    job.span_ns = SPAN_NS;
    return job;
}

/* So many looks at all of them, ten rounds between two. */
static void train(struct rig *rig, struct end *aggregator, struct trained *jobs, size_t count,
                  int looks)
{
    aggregator->answers = false;
    for (int i = 0; i < looks; i++) {
        for (size_t k = 0; k < count; k++)
            trained_go_on(&jobs[k], 10, PERIOD_NS, LANE_NS);
        trained_answer(aggregator, jobs, count);
    }
    aggregator->answers = true;
    rig_settle(rig);
}

static void rounds_that_begin_on_time_are_a_phase(void **state)
{
    struct rig *rig = *state;
    struct end *aggregator = local(rig, 1);
    struct trained job = start(rig, "resnet");
    train(rig, aggregator, &job, 1, 5);
    assert_int_equal(ask(rig, "resnet").window_ns, 0);
    train(rig, aggregator, &job, 1, 7);
    struct told told = ask(rig, "resnet");
    assert_int_equal(told.window_ns, SPAN_NS);
    assert_int_equal(told.begun_ns % PERIOD_NS, job.begun_ns % PERIOD_NS);
}

static void a_round_that_begins_late_ends_the_phase(void **state)
{
    struct rig *rig = *state;
    struct end *aggregator = local(rig, 1);
    struct trained job = start(rig, "resnet");
    train(rig, aggregator, &job, 1, 12);
    assert_true(ask(rig, "resnet").window_ns > 0);
    job.begun_ns += PERIOD_NS / 4;
    train(rig, aggregator, &job, 1, 2);
    assert_int_equal(ask(rig, "resnet").window_ns, 0);
    train(rig, aggregator, &job, 1, 8);
    assert_int_equal(ask(rig, "resnet").begun_ns % PERIOD_NS, job.begun_ns % PERIOD_NS);
}

static void clocks_of_other_hosts_say_nothing(void **state)
{
    struct rig *rig = *state;
    struct end *aggregator = rig_aggregator(rig, 1); /* came over TCP */
    struct trained job = start(rig, "resnet");
    train(rig, aggregator, &job, 1, 12);
    assert_int_equal(ask(rig, "resnet").window_ns, 0);
}

static void who_does_not_go_on_has_no_phase(void **state)
{
    struct rig *rig = *state;
    struct end *aggregator = local(rig, 1);
    struct trained job = start(rig, "resnet");
    train(rig, aggregator, &job, 1, 12);
    uint64_t began_ns = clock_now_ns();
    aggregator->answers = false;
    while (clock_now_ns() - began_ns < 3 * (PERIOD_NS + LOOK_NS) + PERIOD_NS)
        trained_answer(aggregator, &job, 1);
    aggregator->answers = true;
    assert_int_equal(ask(rig, "resnet").window_ns, 0);
    train(rig, aggregator, &job, 1, 1);
    assert_int_equal(ask(rig, "resnet").window_ns, SPAN_NS); /* a pause of whole rounds */
}

/* Two jobs on one lane, the second so much after the first; what the first is to lose. */
static uint32_t predicted_ppm(struct rig *rig, const char *policy, uint64_t lag_ns,
                              uint64_t late_ns)
{
    rig->options.policy = policy;
    rig_start_afresh(rig);
    struct end *aggregator = local(rig, 1);
    struct trained jobs[] = {start(rig, "first"), start(rig, "second")};
    jobs[1].begun_ns += lag_ns;
    train(rig, aggregator, jobs, 2, 12);
    jobs[0].begun_ns += late_ns;
    jobs[1].begun_ns += late_ns;
    train(rig, aggregator, jobs, 2, 1);
    return ask(rig, "first").predicted_ppm;
}

static void bursts_that_stay_apart_cost_nothing_under_phased(void **state)
{
    struct rig *rig = *state;
    uint32_t met_ppm = predicted_ppm(rig, "shared", PERIOD_NS / 2, 0);
    assert_in_range(met_ppm, 80000, 85000); /* 0.3 x 0.3 / (1 + 0.3 x 0.3) */
    assert_int_equal(predicted_ppm(rig, "phased", PERIOD_NS / 2, 0), 0);
    assert_int_equal(predicted_ppm(rig, "phased", PERIOD_NS / 4, 0), met_ppm);
    assert_int_equal(predicted_ppm(rig, "phased", PERIOD_NS / 2, PERIOD_NS / 4), met_ppm);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, measure_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(rounds_that_begin_on_time_are_a_phase),
        CASE(a_round_that_begins_late_ends_the_phase),
        CASE(clocks_of_other_hosts_say_nothing),
        CASE(who_does_not_go_on_has_no_phase),
        CASE(bursts_that_stay_apart_cost_nothing_under_phased),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
