/* Tests that the number of lanes follows the load. Lanes open and park, and local aggregators start
 * and stop (K30 to K33). Aggregators are simulated, measurements are frequent, and hold times are
 * short. */
#include "svc/base/clock.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/measure/measure.h"
#include "svc/coordinator/service.h"
#include "test/unit/coordinator/measure_rig.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>

#define HOLD_NS (60 * NS_PER_MS)
/* time for which a declaration waits for a starting aggregator */
#define PATIENT_NS (60 * NS_PER_S)
/* time for which a declaration waits in cases in which no lane becomes available */
#define BRIEF_NS (300 * NS_PER_MS)

static int scaling_setup(void **state)
{
    measure_setup(state);
    struct rig *rig = *state;
    rig->options.scales = true;
    rig->options.scale_hold_ns = HOLD_NS;
    rig->options.start_wait_ns = PATIENT_NS;
    rig_start_afresh(rig);
    return 0;
}

/* Configures local aggregators of two lanes each. The test decides which of them run. */
static void start_locals(struct rig *rig, uint32_t count)
{
    rig->options.aggregators = count;
    rig->options.cores = "0";
    rig->options.lanes_per_core = 2;
    rig_start_afresh(rig);
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

/* Returns the number of lanes that were open before the first decision. On a slow host lanes may
 * park before the test counts them, so the present number may be lower. */
static size_t lanes_open_first(struct rig *rig)
{
    const struct events *events = service_of(rig)->events;
    size_t parked, open;
    if (events->count == 0)
        return lanes_in(rig, LANE_OPEN);
    assert_int_equal(
        sscanf(events_at(events, 0)->text, "%zu of %zu open lanes park", &parked, &open), 2);
    return open;
}

static void wait_for(struct rig *rig, bool (*is_so)(struct rig *rig, uint64_t what), uint64_t what)
{
    uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
    while (!is_so(rig, what)) {
        if (clock_now_ns() > deadline_ns)
            fail_msg("%zu lanes open, %zu closing, %zu parked, %u starts; decisions: %llu",
                     lanes_in(rig, LANE_OPEN), lanes_in(rig, LANE_CLOSING),
                     lanes_in(rig, LANE_PARKED), rig->starts,
                     (unsigned long long)service_of(rig)->events->count);
        rig_step_within(rig, NS_PER_MS);
    }
}

static bool so_many_are_open(struct rig *rig, uint64_t count)
{
    return lanes_in(rig, LANE_OPEN) == count && lanes_in(rig, LANE_CLOSING) == 0;
}

static bool so_many_have_started(struct rig *rig, uint64_t count) { return rig->starts == count; }

static bool so_many_are_there(struct rig *rig, uint64_t count)
{
    size_t there = 0;
    list_for_each (node, &service_of(rig)->aggregators)
        there += list_entry(node, struct aggregator, link)->state != AGGREGATOR_LOST;
    return there == count;
}

/* Waits for this number of windows. */
static void pass(struct rig *rig, uint32_t windows)
{
    uint64_t until_ns = clock_now_ns() + windows * LOOK_NS;
    while (clock_now_ns() < until_ns)
        rig_step_within(rig, NS_PER_MS);
}

static uint64_t decisions(struct rig *rig) { return service_of(rig)->events->count; }

static const char *last_kind(struct rig *rig)
{
    return events_at(service_of(rig)->events, decisions(rig) - 1)->kind;
}

/* Joins as the local aggregator that was started last. */
static struct end *join_local(struct rig *rig)
{
    return rig_local_aggregator(rig, 2, rig->grants[(rig->starts - 1) % RIG_SLOTS_MAX]);
}

/* Lets the aggregator drain, and ends its process. */
static void end_local(struct rig *rig, struct end *e)
{
    int process = e->process;
    end_close(e);
    rig_kill(rig, process);
}

/* --- lanes --- */

static void lanes_without_a_job_park_and_a_job_opens_them_at_once(void **state)
{
    struct rig *rig = *state;
    struct end *workers[2];
    rig_aggregator(rig, 4);
    assert_int_equal(lanes_open_first(rig), 4);
    wait_for(rig, so_many_are_open, 1);
    assert_int_equal(lanes_in(rig, LANE_PARKED), 3);
    struct trained one = trained_start(rig, "one", &workers[0]);
    struct trained two = trained_start(rig, "two", &workers[1]);
    assert_int_not_equal(one.lane, two.lane);
    assert_int_equal(lanes_in(rig, LANE_OPEN), 2);
    end_leave(workers[0]);
    end_leave(workers[1]);
    wait_for(rig, so_many_are_open, 1);
}

static void operators_see_the_decisions_of_growth(void **state)
{
    struct rig *rig = *state;
    WIRE(StatusRequest) status = GRADPOOL__WIRE__STATUS_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    request.body_case = BODY(STATUS_REQUEST);
    request.status_request = &status;
    rig_aggregator(rig, 4);
    wait_for(rig, so_many_are_open, 1);
    envelope *reply =
        end_ask(rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR), &request);
    const WIRE(StatusReply) *told = reply->status_reply;
    assert_int_equal(told->n_events, decisions(rig));
    assert_true(told->n_events > 0);
    const WIRE(EventView) *last = told->events[told->n_events - 1];
    assert_string_equal(last->kind, last_kind(rig));
    assert_true(*last->text && last->at_ns <= told->uptime_ns);
    message_free(reply);
}

static void an_operator_s_move_opens_a_parked_lane(void **state)
{
    struct rig *rig = *state;
    struct end *worker, *operator= rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    struct end *aggregator = rig_aggregator(rig, 2);
    WIRE(MoveRequest) move = GRADPOOL__WIRE__MOVE_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    struct trained one = trained_start(rig, "one", &worker);
    wait_for(rig, so_many_are_open, 1);
    move.job = (char *)"one";
    move.lane = aggregator->lanes[aggregator->lanes[0] == one.lane];
    assert_int_equal(lane_find(service_of(rig), move.lane)->use, LANE_PARKED);
    request.body_case = BODY(MOVE_REQUEST);
    request.move_request = &move;
    envelope *reply = end_ask(operator, & request);
    assert_int_equal(reply->body_case, BODY(MOVE_REPLY));
    assert_int_equal(reply->move_reply->tasks, 1);
    message_free(reply);
    assert_int_equal(lane_find(service_of(rig), move.lane)->use, LANE_OPEN);
    assert_int_equal(lane_find(service_of(rig), move.lane)->jobs, 1);
}

static void a_target_of_moving_tasks_does_not_park(void **state)
{
    struct rig *rig = *state;
    struct end *worker, *operator= rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    struct end *aggregator = rig_aggregator(rig, 2);
    WIRE(MoveRequest) move = GRADPOOL__WIRE__MOVE_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    struct trained one = trained_start(rig, "one", &worker);
    wait_for(rig, so_many_are_open, 1);
    move.job = (char *)"one";
    move.lane = aggregator->lanes[aggregator->lanes[0] == one.lane];
    request.body_case = BODY(MOVE_REQUEST);
    request.move_request = &move;
    aggregator->ignores = BODY(RELEASE_REQUEST);
    uint64_t id = end_send(operator, & request);
    envelope *release = end_expect(aggregator, BODY(RELEASE_REQUEST));
    const struct lane *target = lane_find(service_of(rig), move.lane);
    pass(rig, 40); /* three hold times */
    assert_int_equal(target->use, LANE_OPEN);
    assert_int_equal(target->arriving, 1);
    aggregator->ignores = 0;
    end_answer(aggregator, release);
    message_free(release);
    envelope *reply = end_expect_reply(operator, id);
    assert_int_equal(reply->body_case, BODY(MOVE_REPLY));
    assert_int_equal(reply->move_reply->tasks, 1);
    message_free(reply);
    wait_for(rig, so_many_are_open, 1);
    assert_int_equal(target->use, LANE_OPEN);
    assert_int_equal(target->arriving, 0);
}

static void with_parked_lanes_only_no_lane_is_measured(void **state)
{
    struct rig *rig = *state;
    rig_aggregator(rig, 4);
    wait_for(rig, so_many_are_open, 1);
    pass(rig, 20);
    assert_true(measuring_is_asleep(service_of(rig)));
}

static void the_operator_s_number_of_lanes_stays_open(void **state)
{
    struct rig *rig = *state;
    struct end *worker;
    rig->options.lanes_min = 2;
    rig->options.lanes_spare = 1;
    rig_start_afresh(rig);
    rig_aggregator(rig, 4);
    wait_for(rig, so_many_are_open, 2);
    trained_start(rig, "one", &worker);
    pass(rig, 40);
    assert_int_equal(lanes_in(rig, LANE_OPEN), 2);
    trained_start(rig, "two", &worker);
    wait_for(rig, so_many_are_open, 3);
    assert_string_equal(last_kind(rig), "open");
}

static void never_are_more_open_than_are_granted(void **state)
{
    struct rig *rig = *state;
    struct end *worker;
    rig->options.lanes_max = 2;
    rig_start_afresh(rig);
    rig_aggregator(rig, 3);
    assert_int_equal(lanes_open_first(rig), 2);
    rig_aggregator(rig, 1);
    assert_in_range(lanes_in(rig, LANE_OPEN), 1, 2);
    uint32_t one = trained_start(rig, "one", &worker).lane;
    uint32_t two = trained_start(rig, "two", &worker).lane;
    uint32_t three = trained_start(rig, "three", &worker).lane;
    assert_true(three == one || three == two);
    assert_int_equal(lanes_in(rig, LANE_OPEN), 2);
}

static void under_a_policy_without_limits_all_lanes_stay_open(void **state)
{
    struct rig *rig = *state;
    rig->options.policy = "least-loaded";
    rig_start_afresh(rig);
    rig_aggregator(rig, 4);
    pass(rig, 40);
    assert_int_equal(lanes_in(rig, LANE_OPEN), 4);
    assert_int_equal(decisions(rig), 0);
}

static void after_a_restart_all_are_open_and_park_again(void **state)
{
    struct rig *rig = *state;
    struct end *aggregator = rig_aggregator(rig, 4), old = *aggregator;
    wait_for(rig, so_many_are_open, 1);
    rig_crash(rig);
    rig_start(rig);
    rig_rejoin(rig, &old, 0, NULL);
    assert_int_equal(lanes_open_first(rig), 4);
    wait_for(rig, so_many_are_open, 1);
}

static void after_a_restart_only_granted_lanes_and_lanes_with_pieces_are_open(void **state)
{
    struct rig *rig = *state;
    struct end *worker;
    struct end *aggregator = rig_aggregator(rig, 4), old = *aggregator;
    uint32_t used = trained_start(rig, "one", &worker).lane;
    for (rig->options.lanes_max = 2; rig->options.lanes_max > 0; rig->options.lanes_max--) {
        rig_crash(rig);
        rig_start(rig);
        rig_rejoin(rig, &old, 0, NULL);
        assert_int_equal(lanes_open_first(rig), rig->options.lanes_max);
        assert_int_equal(lane_find(service_of(rig), used)->use, LANE_OPEN);
    }
}

/* --- aggregators --- */

static void an_aggregator_without_an_open_lane_stops_and_is_not_started_again(void **state)
{
    struct rig *rig = *state;
    start_locals(rig, 2);
    struct end *first = rig_local_aggregator(rig, 2, rig->grants[0]);
    struct end *second = rig_local_aggregator(rig, 2, rig->grants[1]);
    message_free(end_expect(second, BODY(DRAIN_REQUEST)));
    assert_string_equal(last_kind(rig), "stop");
    end_local(rig, second);
    wait_for(rig, so_many_are_there, 1);
    pass(rig, 40);
    end_expect_none(first, BODY(DRAIN_REQUEST));
    assert_int_equal(rig->starts, 2);
    assert_int_equal(lanes_in(rig, LANE_OPEN), 1);
}

static void an_aggregator_that_joined_by_hand_is_not_stopped(void **state)
{
    struct rig *rig = *state;
    start_locals(rig, 1);
    struct end *local = rig_local_aggregator(rig, 2, rig->grants[0]);
    struct end *by_hand = rig_aggregator(rig, 2);
    wait_for(rig, so_many_are_open, 1);
    pass(rig, 20 * HOLD_NS / LOOK_NS);
    end_expect_none(by_hand, BODY(DRAIN_REQUEST));
    end_expect_none(local, BODY(DRAIN_REQUEST));
}

/* Aggregators of both slots join, and the second one stops. */
static struct end *shrink_to_one(struct rig *rig)
{
    start_locals(rig, 2);
    struct end *first = rig_local_aggregator(rig, 2, rig->grants[0]);
    struct end *second = rig_local_aggregator(rig, 2, rig->grants[1]);
    int slot_process = rig->processes[1];
    message_free(end_expect(second, BODY(DRAIN_REQUEST)));
    end_local(rig, second);
    kill(slot_process, SIGKILL);
    wait_for(rig, so_many_are_there, 1);
    return first;
}

static void a_job_that_finds_no_free_lane_waits_for_an_aggregator_that_starts(void **state)
{
    struct rig *rig = *state;
    struct end *workers[4];
    shrink_to_one(rig);
    trained_start(rig, "one", &workers[0]);
    trained_start(rig, "two", &workers[1]);
    for (uint32_t rank = 0; rank < 2; rank++) {
        workers[2 + rank] = rig_join(rig, "three", rank, 2, NULL, NULL);
        end_declare_one(workers[2 + rank], "w", 1000);
    }
    wait_for(rig, so_many_have_started, 3);
    for (uint32_t rank = 0; rank < 2; rank++)
        end_expect_none(workers[2 + rank], BODY(DECLARE_REPLY));
    struct end *third = join_local(rig);
    message_free(end_expect(workers[3], BODY(DECLARE_REPLY)));
    envelope *reply = end_expect(workers[2], BODY(DECLARE_REPLY));
    uint32_t lane = reply->declare_reply->tensors[0]->pieces[0]->lane;
    assert_true(lane == third->lanes[0] || lane == third->lanes[1]);
    message_free(reply);
    assert_int_equal(lanes_in(rig, LANE_OPEN), 3);
}

/* Joins over the Unix socket. TCP closes a connection whose peer reads nothing for 10 s. A
 * coordinator with a sanitizer may need this time for the longest messages. */
static struct end *join_locally(struct rig *rig, const char *job)
{
    envelope request;
    WIRE(JoinRequest) join;
    struct end *e = rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    join_request(&request, &join, job, 0, 1);
    envelope *reply = end_ask(e, &request);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    message_free(reply);
    return e;
}

static void the_waiting_requests_of_a_worker_fit_one_message(void **state)
{
    enum { COUNT = 90000, NAME_BYTES = 104 };
    static char texts[COUNT][NAME_BYTES];
    static const char *names[COUNT];
    static uint64_t elements[COUNT];
    struct rig *rig = *state;
    struct end *workers[2];
    shrink_to_one(rig);
    trained_start(rig, "one", &workers[0]);
    trained_start(rig, "two", &workers[1]);
    for (size_t i = 0; i < COUNT; i++) {
        snprintf(texts[i], NAME_BYTES, "%0*zu", NAME_BYTES - 1, i);
        names[i] = texts[i];
        elements[i] = 1;
    }
    struct end *worker = join_locally(rig, "three");
    end_declare(worker, COUNT, names, elements);
    envelope *refusal = end_expect_reply(worker, end_declare(worker, COUNT, names, elements));
    assert_int_equal(refusal->body_case, BODY(FAILURE));
    assert_int_equal(refusal->failure->code, -EDQUOT);
    assert_non_null(strstr(refusal->failure->text, " already: send fewer requests at a time"));
    message_free(refusal);
    end_expect_none(worker, BODY(DECLARE_REPLY));
}

static void the_wait_for_an_aggregator_that_never_joins_ends(void **state)
{
    struct rig *rig = *state;
    struct end *worker;
    rig->options.start_wait_ns = BRIEF_NS;
    struct end *first = shrink_to_one(rig);
    uint32_t one = trained_start(rig, "one", &worker).lane;
    uint32_t two = trained_start(rig, "two", &worker).lane;
    uint64_t began_ns = clock_now_ns();
    uint32_t three = trained_start(rig, "three", &worker).lane;
    assert_true(clock_now_ns() - began_ns >= BRIEF_NS);
    assert_true(three == one || three == two);
    assert_int_equal(first->lanes_count, 2);
}

/* The service opens its socket before any lane exists. */
static void the_first_job_waits_for_the_first_aggregator_under_every_policy(void **state)
{
    static const char *const policies[] = {"shared", "least-loaded", "mxnet", "dedicated"};
    struct rig *rig = *state;
    rig->options.scales = false;
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        rig->options.policy = policies[i];
        start_locals(rig, 1);
        struct end *worker = rig_join(rig, "one", 0, 1, NULL, NULL);
        end_declare_one(worker, "w", 1000);
        end_expect_none(worker, BODY(FAILURE));
        const struct end *first = join_local(rig);
        envelope *reply = end_expect(worker, BODY(DECLARE_REPLY));
        uint32_t lane = reply->declare_reply->tensors[0]->pieces[0]->lane;
        assert_true(lane == first->lanes[0] || lane == first->lanes[1]);
        message_free(reply);
        for (int process = 0; process < RIG_SLOTS_MAX; process++)
            rig_kill(rig, rig->processes[process]);
    }
}

static void without_an_aggregator_the_first_job_is_refused_in_the_end(void **state)
{
    struct rig *rig = *state;
    rig->options.scales = false;
    rig->options.start_wait_ns = BRIEF_NS;
    start_locals(rig, 1);
    struct end *worker = rig_join(rig, "one", 0, 1, NULL, NULL);
    uint64_t began_ns = clock_now_ns();
    envelope *refusal = end_expect_reply(worker, end_declare_one(worker, "w", 1000));
    assert_int_equal(refusal->body_case, BODY(FAILURE));
    assert_int_equal(refusal->failure->code, -ENOSPC);
    assert_true(clock_now_ns() - began_ns >= BRIEF_NS);
    message_free(refusal);
}

static void the_only_aggregator_is_started_again_after_its_loss(void **state)
{
    struct rig *rig = *state;
    struct end *first = shrink_to_one(rig);
    int slot_process = rig->processes[0];
    end_local(rig, first);
    kill(slot_process, SIGKILL);
    wait_for(rig, so_many_have_started, 3);
}

/* --- a steady load --- */

static void nothing_is_decided_again_while_nothing_changes(void **state)
{
    struct rig *rig = *state;
    struct end *worker;
    rig_aggregator(rig, 4);
    trained_start(rig, "one", &worker);
    wait_for(rig, so_many_are_open, 1);
    uint64_t before = decisions(rig);
    pass(rig, 200);
    assert_int_equal(decisions(rig), before);
}

#define SCALING_TEST(test) cmocka_unit_test_setup_teardown(test, scaling_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCALING_TEST(lanes_without_a_job_park_and_a_job_opens_them_at_once),
        SCALING_TEST(operators_see_the_decisions_of_growth),
        SCALING_TEST(an_operator_s_move_opens_a_parked_lane),
        SCALING_TEST(a_target_of_moving_tasks_does_not_park),
        SCALING_TEST(with_parked_lanes_only_no_lane_is_measured),
        SCALING_TEST(the_operator_s_number_of_lanes_stays_open),
        SCALING_TEST(never_are_more_open_than_are_granted),
        SCALING_TEST(under_a_policy_without_limits_all_lanes_stay_open),
        SCALING_TEST(after_a_restart_all_are_open_and_park_again),
        SCALING_TEST(after_a_restart_only_granted_lanes_and_lanes_with_pieces_are_open),
        SCALING_TEST(an_aggregator_without_an_open_lane_stops_and_is_not_started_again),
        SCALING_TEST(an_aggregator_that_joined_by_hand_is_not_stopped),
        SCALING_TEST(a_job_that_finds_no_free_lane_waits_for_an_aggregator_that_starts),
        SCALING_TEST(the_waiting_requests_of_a_worker_fit_one_message),
        SCALING_TEST(the_wait_for_an_aggregator_that_never_joins_ends),
        SCALING_TEST(the_first_job_waits_for_the_first_aggregator_under_every_policy),
        SCALING_TEST(without_an_aggregator_the_first_job_is_refused_in_the_end),
        SCALING_TEST(the_only_aggregator_is_started_again_after_its_loss),
        SCALING_TEST(nothing_is_decided_again_while_nothing_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
