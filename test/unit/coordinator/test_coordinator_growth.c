/* Tests moves of tasks that let lanes park and keep jobs within their loss limits (K30). The test
 * sets the jobs' profiles. Aggregators answer the requests of moves. */
#include "svc/base/clock.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/job/hold.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/migration/migration.h"
#include "svc/coordinator/service.h"
#include "svc/reduce/update.h"
#include "test/unit/coordinator/measure_rig.h"

#include <string.h>

#define HOLD_NS (60 * NS_PER_MS)
#define PERIOD_NS (100 * NS_PER_MS)

static int growth_setup(void **state)
{
    measure_setup(state);
    struct rig *rig = *state;
    rig->options.scales = true;
    rig->options.scale_hold_ns = HOLD_NS;
    rig_start_afresh(rig);
    return 0;
}

static struct service *service_of(struct rig *rig) { return rig->coordinator->service; }

static size_t lanes_in(struct rig *rig, enum lane_use use)
{
    size_t count = 0;
    list_for_each (node, &service_of(rig)->aggregators) {
        const struct aggregator *a = list_entry(node, struct aggregator, link);
        for (size_t i = 0; i < a->lanes_count && a->state != AGGREGATOR_LOST; i++)
            count += a->lanes[i].use == use;
    }
    return count;
}

static uint64_t decisions(struct rig *rig) { return service_of(rig)->events->count; }

static bool was_decided(struct rig *rig, enum scale_verb verb)
{
    const struct events *events = service_of(rig)->events;
    for (uint64_t i = 0; i < events->count; i++) {
        const struct event *e = events_at(events, i);
        if (e && strcmp(e->kind, scaling_verb_name(verb)) == 0)
            return true;
    }
    return false;
}

static void wait_for(struct rig *rig, enum lane_use use, size_t count)
{
    uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
    while (lanes_in(rig, use) != count) {
        if (clock_now_ns() > deadline_ns)
            fail_msg("%zu lanes open, %zu closing, %zu parked", lanes_in(rig, LANE_OPEN),
                     lanes_in(rig, LANE_CLOSING), lanes_in(rig, LANE_PARKED));
        rig_step_within(rig, NS_PER_MS);
    }
}

static void wait_for_verb(struct rig *rig, enum scale_verb verb)
{
    uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
    while (!was_decided(rig, verb)) {
        assert_true(clock_now_ns() < deadline_ns);
        rig_step_within(rig, NS_PER_MS);
    }
}

static void pass(struct rig *rig, uint32_t windows)
{
    uint64_t until_ns = clock_now_ns() + windows * LOOK_NS;
    while (clock_now_ns() < until_ns)
        rig_step_within(rig, NS_PER_MS);
}

static struct job *job_of(struct rig *rig, const struct trained *t)
{
    struct job *job = jobs_find_id(service_of(rig), t->job);
    assert_non_null(job);
    return job;
}

/* Sets the measured profile of a job: `lane_ns` of lane time in each round of `period_ns`. */
static void know(struct job *job, uint64_t lane_ns, uint64_t period_ns)
{
    struct profile_times alone = {
        .period_ns = PERIOD_NS, .busiest_ns = lane_ns, .lanes_ns = lane_ns};
    job->profile->alone = job->profile->now = job->profile->used = alone;
    job->profile->now.period_ns = period_ns;
    for (size_t i = 0; i < job->shares_count; i++)
        job->shares[i].lane_ns = job->shares[i].pieces ? lane_ns : 0;
}

static uint32_t lane_of(struct rig *rig, const struct trained *t)
{
    return job_of(rig, t)->tensors[0]->pieces[0].lane->id;
}

static enum share_how how_of(struct rig *rig, const struct trained *t)
{
    struct job *job = job_of(rig, t);
    return jobs_share(job, job->tensors[0]->pieces[0].lane)->how;
}

/* Two jobs, each on one lane. Each job needs a small part of its lane. */
struct pair {
    struct end *workers[2];
    struct trained jobs[2];
};

static struct pair start_pair(struct rig *rig, uint64_t lane_ns)
{
    struct pair pair;
    pair.jobs[0] = trained_start(rig, "one", &pair.workers[0]);
    pair.jobs[1] = trained_start(rig, "two", &pair.workers[1]);
    assert_int_not_equal(pair.jobs[0].lane, pair.jobs[1].lane);
    for (int i = 0; i < 2; i++)
        know(job_of(rig, &pair.jobs[i]), lane_ns, PERIOD_NS);
    return pair;
}

/* the job declares tensors but never pushes */
static void a_job_that_never_trains_holds_no_lane(void **state)
{
    struct rig *rig = *state;
    struct end *workers[2];
    rig_aggregator(rig, 2);
    struct trained one = trained_start(rig, "one", &workers[0]);
    struct trained two = trained_start(rig, "two", &workers[1]);
    know(job_of(rig, &one), 2 * NS_PER_MS, PERIOD_NS);
    assert_int_not_equal(one.lane, two.lane);
    /* the limit starts only here, because job "two" may start much later */
    service_of(rig)->options->idle_ns = HOLD_NS;
    assert_int_equal(job_of(rig, &two)->profile->now.period_ns, 0);
    wait_for(rig, LANE_PARKED, 1);
    assert_int_equal(lane_of(rig, &one), lane_of(rig, &two));
}

static void a_lane_that_is_not_needed_is_emptied_and_parks(void **state)
{
    struct rig *rig = *state;
    struct end *aggregator = rig_aggregator(rig, 2);
    struct pair pair = start_pair(rig, 2 * NS_PER_MS);
    wait_for(rig, LANE_PARKED, 1);
    assert_true(was_decided(rig, SCALE_DRAIN));
    assert_int_equal(lane_of(rig, &pair.jobs[0]), lane_of(rig, &pair.jobs[1]));
    message_free(end_expect(aggregator, BODY(RELEASE_REQUEST)));
    message_free(end_expect(aggregator, BODY(INSTALL_REQUEST)));
    int moved = lane_of(rig, &pair.jobs[0]) == pair.jobs[0].lane ? 1 : 0;
    envelope *change = end_expect(pair.workers[moved], BODY(ROUTE_CHANGE));
    message_free(change);
    end_expect_none(pair.workers[!moved], BODY(ROUTE_CHANGE));
    assert_int_equal(how_of(rig, &pair.jobs[moved]), SHARE_GATHERED);
    assert_int_not_equal(how_of(rig, &pair.jobs[!moved]), SHARE_GATHERED);
}

/* Each of two tasks has 12 MiB of state on the lane, so one batch cannot contain both tasks. */
static void much_state_moves_batch_after_batch(void **state)
{
    struct rig *rig = *state;
    struct end *aggregator = rig_aggregator(rig, 2), *workers[2];
    struct trained one = trained_start(rig, "one", &workers[0]), two;
    struct lane *home = lane_find(service_of(rig), one.lane);
    struct lane *other =
        lane_find(service_of(rig), aggregator->lanes[aggregator->lanes[0] == one.lane]);
    const char *names[] = {"a", "b"};
    uint64_t elements[] = {1 << 20, 1 << 20};
    other->use = LANE_WITHHELD;
    message_free(end_expect_reply(workers[0], end_declare(workers[0], 2, names, elements)));
    other->use = LANE_OPEN;
    two = trained_start(rig, "two", &workers[1]);
    assert_int_equal(two.lane, other->id);
    for (size_t i = 1; i < 3; i++)
        job_of(rig, &one)->tensors[i]->terms.rule = UPDATE_ADAM;
    know(job_of(rig, &one), 2 * NS_PER_MS, PERIOD_NS);
    know(job_of(rig, &two), 4 * NS_PER_MS, PERIOD_NS);
    wait_for(rig, LANE_PARKED, 1);
    assert_int_equal(home->use, LANE_PARKED);
    for (int i = 0; i < 3; i++) {
        envelope *release = end_expect(aggregator, BODY(RELEASE_REQUEST));
        assert_int_equal(release->release_request->n_pieces, 1);
        message_free(release);
    }
    end_expect_none(aggregator, BODY(RELEASE_REQUEST));
}

static void under_a_steady_load_nothing_is_decided_again(void **state)
{
    struct rig *rig = *state;
    rig_aggregator(rig, 4);
    start_pair(rig, 2 * NS_PER_MS);
    wait_for(rig, LANE_PARKED, 3);
    uint64_t before = decisions(rig);
    pass(rig, 300);
    assert_int_equal(decisions(rig), before);
}

static void jobs_that_would_cost_each_other_too_much_stay_apart(void **state)
{
    struct rig *rig = *state;
    rig_aggregator(rig, 2);
    start_pair(rig, 30 * NS_PER_MS);
    uint64_t before = decisions(rig);
    pass(rig, 100);
    assert_int_equal(lanes_in(rig, LANE_OPEN), 2);
    assert_int_equal(decisions(rig), before);
}

static void tasks_do_not_move_to_a_lane_without_memory(void **state)
{
    struct rig *rig = *state;
    limits_init(&rig->options.limits);
    /* A piece needs RIG_COST_BYTES, and its rank needs the same amount: the lane has memory for one
     * tensor, not for two. */
    rig->options.limits.most[LIMIT_LANE_MEMORY] = 3 * RIG_COST_BYTES;
    rig_start_afresh(rig);
    rig_aggregator(rig, 2);
    start_pair(rig, 2 * NS_PER_MS);
    pass(rig, 100);
    assert_int_equal(lanes_in(rig, LANE_OPEN), 2);
    assert_false(was_decided(rig, SCALE_DRAIN));
}

static void tasks_that_could_not_move_are_planned_again(void **state)
{
    struct rig *rig = *state;
    struct end *aggregator = rig_aggregator(rig, 2);
    aggregator->refuses = BODY(RELEASE_REQUEST);
    struct pair pair = start_pair(rig, 2 * NS_PER_MS);
    wait_for_verb(rig, SCALE_DRAIN);
    wait_for(rig, LANE_OPEN, 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(lane_of(rig, &pair.jobs[i]), pair.jobs[i].lane);
    aggregator->refuses = 0;
    wait_for(rig, LANE_PARKED, 1);
    kept_log_expect("tasks stay on their lanes: ");
}

static void a_closing_lane_gets_no_new_job(void **state)
{
    struct rig *rig = *state;
    struct end *aggregator = rig_aggregator(rig, 2), *worker;
    struct pair pair = start_pair(rig, 2 * NS_PER_MS);
    aggregator->ignores = BODY(RELEASE_REQUEST);
    wait_for(rig, LANE_CLOSING, 1);
    uint32_t closing = 0;
    for (int i = 0; i < 2; i++)
        if (lane_find(service_of(rig), pair.jobs[i].lane)->use == LANE_CLOSING)
            closing = pair.jobs[i].lane;
    assert_int_not_equal(trained_start(rig, "three", &worker).lane, closing);
}

static void a_job_above_its_loss_limit_moves_away_from_its_neighbours(void **state)
{
    struct rig *rig = *state;
    rig_aggregator(rig, 2);
    struct pair pair = start_pair(rig, 2 * NS_PER_MS);
    wait_for(rig, LANE_PARKED, 1);
    know(job_of(rig, &pair.jobs[0]), 40 * NS_PER_MS, PERIOD_NS);
    know(job_of(rig, &pair.jobs[1]), 40 * NS_PER_MS, PERIOD_NS + 20 * NS_PER_MS);
    wait_for_verb(rig, SCALE_RELIEVE);
    wait_for(rig, LANE_OPEN, 2);
    uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
    while (lane_of(rig, &pair.jobs[0]) == lane_of(rig, &pair.jobs[1])) {
        assert_true(clock_now_ns() < deadline_ns);
        rig_step_within(rig, NS_PER_MS);
    }
    assert_true(how_of(rig, &pair.jobs[0]) == SHARE_RELIEVED ||
                how_of(rig, &pair.jobs[1]) == SHARE_RELIEVED);
    const struct events *events = service_of(rig)->events;
    bool is_named = false;
    for (uint64_t i = 0; i < events->count; i++)
        is_named |= strncmp(events_at(events, i)->text, "job two has lost more than its limit",
                            strlen("job two has lost more than its limit")) == 0;
    assert_true(is_named);
}

/* Both jobs stay on the lane until the order is withdrawn. */
static void tasks_that_an_operator_moved_together_stay_together(void **state)
{
    struct rig *rig = *state;
    char text[ORDER_HOLD_TEXT_BYTES];
    rig->options.order_hold_ns = 600 * NS_PER_S;
    rig_start_afresh(rig);
    rig_aggregator(rig, 2);
    struct pair pair = start_pair(rig, 40 * NS_PER_MS);
    struct job *job = job_of(rig, &pair.jobs[0]);
    assert_string_equal(order_hold_text(job, text, sizeof text), "");
    struct end *operator= rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    envelope request = ENVELOPE_INIT;
    WIRE(MoveRequest) move = GRADPOOL__WIRE__MOVE_REQUEST__INIT;
    move.job = (char *)"one";
    move.tenant = (char *)"";
    move.lane = pair.jobs[1].lane;
    request.body_case = BODY(MOVE_REQUEST);
    request.move_request = &move;
    envelope *reply = end_ask(operator, & request);
    assert_int_equal(reply->body_case, BODY(MOVE_REPLY));
    assert_int_equal(reply->move_reply->hold_ns, 600 * NS_PER_S);
    message_free(reply);
    for (int i = 0; i < 2; i++)
        know(job_of(rig, &pair.jobs[i]), 40 * NS_PER_MS, PERIOD_NS + 20 * NS_PER_MS);
    pass(rig, 20);
    assert_false(was_decided(rig, SCALE_RELIEVE));
    assert_int_equal(lane_of(rig, &pair.jobs[0]), lane_of(rig, &pair.jobs[1]));
    assert_non_null(strstr(order_hold_text(job_of(rig, &pair.jobs[1]), text, sizeof text),
                           "an operator's move holds it there for"));
    for (int i = 0; i < 2; i++)
        job_of(rig, &pair.jobs[i])->growth->ordered_until_ns = clock_now_ns();
    wait_for_verb(rig, SCALE_RELIEVE);
}

static uint64_t hold_of(struct rig *rig, const struct pair *pair)
{
    return order_hold_ns(job_of(rig, &pair->jobs[0]));
}

static void a_hold_goes_on_after_a_restart_of_the_coordinator(void **state)
{
    struct rig *rig = *state;
    rig->options.order_hold_ns = 600 * NS_PER_S;
    rig_start_afresh(rig);
    rig_aggregator(rig, 2);
    struct pair pair = start_pair(rig, 40 * NS_PER_MS);
    struct job *job = job_of(rig, &pair.jobs[0]);
    order_hold_begin(job, lane_find(service_of(rig), pair.jobs[1].lane));
    uint64_t before_ns = hold_of(rig, &pair);
    rig_crash(rig);
    rig_start(rig);
    assert_in_range(hold_of(rig, &pair), 1, before_ns);
    assert_in_range(order_hold_ns(job_of(rig, &pair.jobs[1])), 1, before_ns);
    rig_crash(rig);
    rig->options.order_hold_ns = 5 * NS_PER_S; /* after the restart a hold is at most as long as the
                                                * new value of the option */
    rig_start(rig);
    assert_in_range(hold_of(rig, &pair), 1, 5 * NS_PER_S);
}

/* The other reason may be a slow machine. Another lane would not help the job. */
static void a_job_that_is_slow_for_another_reason_stays_with_a_log_line(void **state)
{
    struct rig *rig = *state;
    char text[SCALING_STAY_BYTES];
    rig_aggregator(rig, 2);
    struct pair pair = start_pair(rig, 2 * NS_PER_MS);
    wait_for(rig, LANE_PARKED, 1);
    struct job *job = job_of(rig, &pair.jobs[1]);
    assert_string_equal(scaling_stay_text(job, text, sizeof text), "");
    know(job, 2 * NS_PER_MS, 2 * PERIOD_NS);
    uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
    while (job->growth->told_stay == SCALE_STAY_NOT) {
        assert_true(clock_now_ns() < deadline_ns);
        rig_step_within(rig, NS_PER_MS);
    }
    assert_non_null(
        strstr(scaling_stay_text(job, text, sizeof text),
               "above its loss limit, but sharing lanes causes only 0.0 % of its loss of 50.0 %"));
    assert_false(was_decided(rig, SCALE_RELIEVE));
    know(job, 2 * NS_PER_MS, PERIOD_NS);
    while (job->growth->told_stay != SCALE_STAY_NOT) {
        assert_true(clock_now_ns() < deadline_ns);
        rig_step_within(rig, NS_PER_MS);
    }
}

/* When the job started, no lane was free. Later a lane becomes free. The measurements on this lane
 * are simulated. */
static void a_job_never_measured_alone_gets_a_lane_and_returns(void **state)
{
    struct rig *rig = *state;
    rig_aggregator(rig, 2);
    struct pair pair = start_pair(rig, 2 * NS_PER_MS);
    wait_for(rig, LANE_PARKED, 1);
    struct job *job = job_of(rig, &pair.jobs[1]);
    job->profile->alone = (struct profile_times){0};
    job->figures->trained_ns = clock_now_ns();
    wait_for_verb(rig, SCALE_MEASURE);
    wait_for(rig, LANE_OPEN, 2);
    uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
    while (lane_of(rig, &pair.jobs[0]) == lane_of(rig, &pair.jobs[1])) {
        assert_true(clock_now_ns() < deadline_ns);
        rig_step_within(rig, NS_PER_MS);
    }
    assert_int_equal(how_of(rig, &pair.jobs[1]), SHARE_ALONE);
    know(job, 2 * NS_PER_MS, PERIOD_NS);
    wait_for(rig, LANE_PARKED, 1);
    assert_int_equal(lane_of(rig, &pair.jobs[0]), lane_of(rig, &pair.jobs[1]));
}

/* Ends the source or the target of a running drain. */
static void one_of_two_leaves(struct rig *rig, bool is_source)
{
    struct end *ends[2] = {rig_aggregator(rig, 1), rig_aggregator(rig, 1)};
    struct pair pair = start_pair(rig, 2 * NS_PER_MS);
    for (int i = 0; i < 2; i++)
        ends[i]->ignores = BODY(RELEASE_REQUEST);
    wait_for(rig, LANE_CLOSING, 1);
    bool closes = lane_find(service_of(rig), ends[0]->lanes[0])->use == LANE_CLOSING;
    int leaver = closes == is_source ? 0 : 1;
    WIRE(AggregatorLeave) leave = GRADPOOL__WIRE__AGGREGATOR_LEAVE__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    request.body_case = BODY(AGGREGATOR_LEAVE);
    request.aggregator_leave = &leave;
    end_send(ends[leaver], &request);
    wait_for(rig, LANE_CLOSING, 0);
    rig_settle(rig);
    for (int i = 0; i < 2; i++)
        assert_int_equal(lane_of(rig, &pair.jobs[i]), ends[!leaver]->lanes[0]);
    assert_false(moving_is_busy(job_of(rig, &pair.jobs[0])));
    assert_int_equal(lanes_in(rig, LANE_OPEN), 1);
}

static void an_aggregator_that_leaves_in_the_middle_leaves_no_lane_closing(void **state)
{
    one_of_two_leaves(*state, true);
}

static void jobs_of_a_lost_target_continue_on_the_lane_that_was_closing(void **state)
{
    one_of_two_leaves(*state, false);
}

/* Some lanes of the maximum number are reserved for the next aggregator. A job without a lane may
 * use these lanes now. */
static void a_job_without_its_lane_opens_one_while_an_aggregator_joins(void **state)
{
    struct rig *rig = *state;
    struct end *worker;
    rig->options.lanes_max = 1;
    rig->options.aggregators = 1;
    rig->options.cores = "0";
    rig->options.lanes_per_core = 1;
    rig_start_afresh(rig);
    struct end *local = rig_local_aggregator(rig, 1, rig->grants[0]);
    struct trained one = trained_start(rig, "one", &worker);
    assert_int_equal(one.lane, local->lanes[0]);
    struct end *other = rig_aggregator(rig, 1);
    wait_for(rig, LANE_PARKED, 1);
    int process = local->process;
    end_close(local);
    rig_kill(rig, process);
    wait_for(rig, LANE_PARKED, 0);
    assert_int_equal(lane_of(rig, &one), other->lanes[0]);
}

#define GROWTH_TEST(test) cmocka_unit_test_setup_teardown(test, growth_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        GROWTH_TEST(a_job_that_never_trains_holds_no_lane),
        GROWTH_TEST(a_lane_that_is_not_needed_is_emptied_and_parks),
        GROWTH_TEST(much_state_moves_batch_after_batch),
        GROWTH_TEST(under_a_steady_load_nothing_is_decided_again),
        GROWTH_TEST(jobs_that_would_cost_each_other_too_much_stay_apart),
        GROWTH_TEST(tasks_do_not_move_to_a_lane_without_memory),
        GROWTH_TEST(tasks_that_could_not_move_are_planned_again),
        GROWTH_TEST(a_closing_lane_gets_no_new_job),
        GROWTH_TEST(a_job_above_its_loss_limit_moves_away_from_its_neighbours),
        GROWTH_TEST(tasks_that_an_operator_moved_together_stay_together),
        GROWTH_TEST(a_hold_goes_on_after_a_restart_of_the_coordinator),
        GROWTH_TEST(a_job_that_is_slow_for_another_reason_stays_with_a_log_line),
        GROWTH_TEST(a_job_never_measured_alone_gets_a_lane_and_returns),
        GROWTH_TEST(an_aggregator_that_leaves_in_the_middle_leaves_no_lane_closing),
        GROWTH_TEST(jobs_of_a_lost_target_continue_on_the_lane_that_was_closing),
        GROWTH_TEST(a_job_without_its_lane_opens_one_while_an_aggregator_joins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
