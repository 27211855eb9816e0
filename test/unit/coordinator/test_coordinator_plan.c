/* Tests plans, which predict a placement and place no piece (K34). */
#include "svc/base/clock.h"
#include "test/unit/coordinator/measure_rig.h"

#include <errno.h>
#include <string.h>

static envelope *plan(struct rig *rig, const char *name, uint32_t workers, uint64_t elements,
                      uint64_t period_ns, uint64_t lane_ns)
{
    struct end *asking = rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    WIRE(PlanRequest) wanted = GRADPOOL__WIRE__PLAN_REQUEST__INIT;
    WIRE(TensorSpec) spec = GRADPOOL__WIRE__TENSOR_SPEC__INIT, *specs = &spec;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    spec.name = (char *)"w";
    spec.dtype = 1;
    spec.elements = elements;
    wanted.job = (char *)name;
    wanted.workers = workers;
    wanted.tensors = &specs;
    wanted.n_tensors = 1;
    wanted.period_ns = period_ns;
    wanted.lane_ns = lane_ns;
    request.body_case = BODY(PLAN_REQUEST);
    request.plan_request = &wanted;
    return end_ask(asking, &request);
}

static void no_job_or_lane_changes_by_a_plan(void **state)
{
    struct rig *rig = *state;
    struct end *aggregator = rig_aggregator(rig, 2);
    aggregator->answers = false;
    for (int i = 0; i < 3; i++) {
        envelope *reply = plan(rig, "new", 2, 4 << 20, 0, 0);
        assert_int_equal(reply->body_case, BODY(PLAN_REPLY));
        assert_int_equal(reply->plan_reply->code, 0);
        assert_int_equal(reply->plan_reply->period_ns, 0);
        assert_int_equal(reply->plan_reply->n_lanes, 2);
        assert_non_null(strstr(reply->plan_reply->why, "so that the job is measured"));
        assert_int_equal(reply->plan_reply->lanes[0]->bytes, 8 << 20);
        assert_string_equal(reply->plan_reply->lanes[0]->state, "open");
        message_free(reply);
    }
    end_expect_none(aggregator, BODY(PLACE_REQUEST));
    aggregator->answers = true;
    uint64_t session;
    uint32_t id;
    rig_join(rig, "first", 0, 1, &session, &id);
    assert_int_equal(id, 1);
}

static void a_plan_names_the_loss_of_each_job(void **state)
{
    struct rig *rig = *state;
    measure_know(rig, 20 * NS_PER_MS, 1, (const char *[]){"a"});
    rig_aggregator(rig, 1);
    measure_lane_of(rig, "a");
    envelope *reply = plan(rig, "new", 1, 1000, 100 * NS_PER_MS, 20 * NS_PER_MS);
    const WIRE(PlanReply) *p = reply->plan_reply;
    assert_int_equal(p->code, 0);
    assert_int_equal(p->lane_ns, 20 * NS_PER_MS);
    assert_int_equal(p->n_lanes, 1);
    assert_int_equal(p->lanes[0]->other_jobs, 1);
    assert_int_equal(p->n_jobs, 2);
    assert_string_equal(p->jobs[0]->job, "new");
    assert_true(p->jobs[0]->is_new && p->jobs[0]->before_ppm == 0 && !p->jobs[1]->is_new);
    assert_string_equal(p->jobs[1]->job, "a");
    assert_int_equal(p->jobs[1]->before_ppm, 0);
    /* with loads u = v = 0.2 the loss is at most u v / (1 + u v) = 3.8 %; if the ends of rounds are
     * known, the loss is smaller */
    assert_in_range(p->jobs[1]->after_ppm, 1000, 39000);
    message_free(reply);
}

/* Plans a job of four workers on two lanes. The period in the request includes the lane time. */
static void a_job_alone_stays_within_its_limit(void **state)
{
    struct rig *rig = *state;
    rig->options.loss_limit_ppm = 50000;
    rig_aggregator(rig, 2);
    envelope *reply = plan(rig, "new", 4, 25 << 20, 120 * NS_PER_MS, 40 * NS_PER_MS);
    const WIRE(PlanReply) *p = reply->plan_reply;
    assert_int_equal(p->code, 0);
    assert_int_equal(p->n_lanes, 2);
    assert_int_equal(p->n_jobs, 1);
    assert_in_range(p->jobs[0]->after_ppm, 0, 50000);
    assert_non_null(strstr(p->why, "every job stays within its loss limit"));
    message_free(reply);
}

static void a_job_that_ran_before_is_planned_as_it_ran(void **state)
{
    struct rig *rig = *state;
    measure_know(rig, 4 * NS_PER_MS, 1, (const char *[]){"a"});
    rig_aggregator(rig, 1);
    envelope *reply = plan(rig, "a", 1, 1000, 0, 0);
    assert_int_equal(reply->plan_reply->period_ns, 100 * NS_PER_MS);
    assert_in_range(reply->plan_reply->lane_ns, 4 * NS_PER_MS - 1000, 4 * NS_PER_MS);
    message_free(reply);
}

static void a_refused_plan_has_its_reason(void **state)
{
    struct rig *rig = *state;
    rig->options.loss_limit_ppm = 50000;
    measure_know(rig, 40 * NS_PER_MS, 1, (const char *[]){"a"});
    rig_aggregator(rig, 1);
    measure_lane_of(rig, "a");
    envelope *reply = plan(rig, "new", 1, 1000, 100 * NS_PER_MS, 40 * NS_PER_MS);
    assert_int_equal(reply->plan_reply->code, -ENOSPC);
    assert_int_equal(reply->plan_reply->n_lanes, 0);
    assert_non_null(strstr(reply->plan_reply->why, "job new cannot be placed: tensor w needs "));
    assert_non_null(strstr(reply->plan_reply->why, "; its own limit is 5 %, by --loss-limit"));
    assert_non_null(strstr(reply->plan_reply->why, "add an aggregator, end a job or raise"));
    message_free(reply);
}

static void limits_hold_for_plans_too(void **state)
{
    struct rig *rig = *state;
    rig_crash(rig);
    limits_init(&rig->options.limits);
    rig->options.limits.most[LIMIT_JOB_BYTES] = 4000;
    rig_start(rig);
    rig_aggregator(rig, 1);
    envelope *reply = plan(rig, "new", 1, 1001, 0, 0);
    assert_int_equal(reply->plan_reply->code, -EDQUOT);
    assert_non_null(strstr(reply->plan_reply->why, "job-bytes"));
    message_free(reply);
    reply = plan(rig, "new", 1, 1000, 0, 0);
    assert_int_equal(reply->plan_reply->code, 0);
    message_free(reply);
}

static void a_plan_for_an_invalid_job_is_refused(void **state)
{
    struct rig *rig = *state;
    rig_aggregator(rig, 1);
    static const struct {
        uint32_t workers;
        uint64_t elements, period_ns, lane_ns;
    } wrong[] = {{0, 1, 0, 0}, {769, 1, 0, 0}, {1, 1, UINT64_MAX, 0}, {1, 1, 1, UINT64_MAX}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        envelope *reply = plan(rig, "x", wrong[i].workers, wrong[i].elements, wrong[i].period_ns,
                               wrong[i].lane_ns);
        assert_int_equal(reply->body_case, BODY(FAILURE));
        assert_int_equal(reply->failure->code, -EINVAL);
        message_free(reply);
    }
    envelope *reply = plan(rig, "x", 1, UINT64_MAX, 0, 0);
    assert_int_equal(reply->plan_reply->code, -EINVAL);
    message_free(reply);
}

static void a_running_job_of_the_same_name_is_another(void **state)
{
    struct rig *rig = *state;
    measure_know(rig, 20 * NS_PER_MS, 1, (const char *[]){"a"});
    rig_aggregator(rig, 1);
    measure_lane_of(rig, "a");
    envelope *reply = plan(rig, "a", 1, 1000, 100 * NS_PER_MS, 20 * NS_PER_MS);
    const WIRE(PlanReply) *p = reply->plan_reply;
    assert_int_equal(p->n_jobs, 2);
    assert_true(p->jobs[0]->is_new && !p->jobs[1]->is_new);
    assert_string_equal(p->jobs[1]->job, "a");
    message_free(reply);
}

/* A request without lane time uses the mean time per byte of measured jobs. */
static void lane_time_is_that_of_measured_jobs(void **state)
{
    struct rig *rig = *state;
    measure_know(rig, 20 * NS_PER_MS, 1, (const char *[]){"a"});
    rig_aggregator(rig, 1);
    envelope *reply = plan(rig, "new", 1, 4000, 100 * NS_PER_MS, 0);
    assert_int_equal(reply->plan_reply->period_ns, 0); /* no job has been measured */
    message_free(reply);
    measure_lane_of(rig, "a"); /* 1,000 elements of one worker */
    reply = plan(rig, "new", 1, 4000, 100 * NS_PER_MS, 0);
    assert_in_range(reply->plan_reply->lane_ns, 79 * NS_PER_MS, 81 * NS_PER_MS);
    message_free(reply);
}

static void names_that_a_join_or_a_declare_would_refuse_are_refused(void **state)
{
    struct rig *rig = *state;
    rig_aggregator(rig, 1);
    char name[200] = {0};
    memset(name, 'x', 128);
    envelope *reply = plan(rig, name, 1, 1, 0, 0);
    assert_int_equal(reply->body_case, BODY(FAILURE));
    assert_non_null(strstr(reply->failure->text, "1 to 127 bytes"));
    message_free(reply);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, measure_setup, rig_teardown)

int main(void)
{
    static const struct CMUnitTest cases[] = {
        CASE(no_job_or_lane_changes_by_a_plan),
        CASE(a_plan_names_the_loss_of_each_job),
        CASE(a_job_alone_stays_within_its_limit),
        CASE(a_running_job_of_the_same_name_is_another),
        CASE(lane_time_is_that_of_measured_jobs),
        CASE(names_that_a_join_or_a_declare_would_refuse_are_refused),
        CASE(a_job_that_ran_before_is_planned_as_it_ran),
        CASE(a_refused_plan_has_its_reason),
        CASE(limits_hold_for_plans_too),
        CASE(a_plan_for_an_invalid_job_is_refused),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
