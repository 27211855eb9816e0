/* Tests the early feedback of a job: the time from the arrival of the job to the end of its first
 * round. The aggregators and their times are simulated. */
#include "svc/base/clock.h"
#include "svc/coordinator/service.h"
#include "test/unit/coordinator/measure_rig.h"

#include <stdlib.h>

static struct end *local(struct rig *rig, uint32_t lanes)
{
    return rig_local_aggregator(rig, lanes, "");
}

static uint64_t feedback_of(struct rig *rig)
{
    const WIRE(JobView) * view;
    envelope *reply = measure_ask_job(rig, "resnet", &view);
    uint64_t feedback_ns = view->feedback_ns;
    message_free(reply);
    return feedback_ns;
}

static void early_feedback_is_from_the_arrival_to_the_end_of_the_first_round(void **state)
{
    struct rig *rig = *state;
    struct end *worker, *aggregator = local(rig, 1);
    uint64_t before_ns = clock_now_ns();
    struct trained job = trained_start(rig, "resnet", &worker);
    aggregator->answers = false;
    trained_run(aggregator, &job, 1, 100 * NS_PER_MS, NS_PER_MS);
    aggregator->answers = true;
    assert_int_equal(feedback_of(rig), 0); /* the first round is still open */
    job.first_done_ns = clock_now_ns() + 7 * NS_PER_S;
    aggregator->answers = false;
    trained_run(aggregator, &job, 2, 100 * NS_PER_MS, NS_PER_MS);
    aggregator->answers = true;
    rig_settle(rig);
    assert_in_range(feedback_of(rig), 7 * NS_PER_S, job.first_done_ns - before_ns);
}

static void a_time_of_another_clock_is_placed_at_its_arrival(void **state)
{
    struct rig *rig = *state;
    struct end *worker, *aggregator = rig_aggregator(rig, 1);
    uint64_t before_ns = clock_now_ns();
    struct trained job = trained_start(rig, "resnet", &worker);
    job.first_done_ns = 1;
    aggregator->answers = false;
    trained_run(aggregator, &job, 1, 100 * NS_PER_MS, NS_PER_MS);
    aggregator->answers = true;
    rig_settle(rig);
    assert_in_range(feedback_of(rig), 1, clock_now_ns() - before_ns);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, measure_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(early_feedback_is_from_the_arrival_to_the_end_of_the_first_round),
        CASE(a_time_of_another_clock_is_placed_at_its_arrival),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
