/* Tests silent aggregators, and aggregators that only appear silent. In this test the time limit
 * for silence is short, and a silent aggregator stays connected. */
#include "test/unit/coordinator/coordinator_rig.h"

#include "svc/base/clock.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#define TIMEOUT_NS (500 * NS_PER_MS)

static int setup(void **state)
{
    rig_setup(state);
    struct rig *rig = *state;
    rig->options.aggregator_timeout_ns = TIMEOUT_NS;
    rig_start_afresh(rig);
    return 0;
}

static void run_for(struct rig *rig, uint64_t ns)
{
    uint64_t until_ns = clock_now_ns() + ns;
    while (clock_now_ns() < until_ns)
        rig_settle(rig);
}

static void await_gone(struct rig *rig, const struct end *e)
{
    uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
    while (!e->is_gone && clock_now_ns() < deadline_ns)
        rig_settle(rig);
    assert_true(e->is_gone);
}

/* The coordinator serves no peer for this time, like a stopped process. */
static void stand_still(uint64_t ns)
{
    struct timespec time = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
    nanosleep(&time, NULL);
}

static void expect_state(struct rig *rig, uint32_t aggregator, const char *state)
{
    WIRE(StatusRequest) status = GRADPOOL__WIRE__STATUS_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    request.body_case = BODY(STATUS_REQUEST);
    request.status_request = &status;
    struct end *e = rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    envelope *reply = end_ask(e, &request);
    const WIRE(StatusReply) *s = reply->status_reply;
    for (size_t i = 0; i < s->n_aggregators; i++) {
        if (s->aggregators[i]->aggregator != aggregator)
            continue;
        assert_string_equal(s->aggregators[i]->state, state);
        assert_int_equal(s->aggregators[i]->silent_ns > 0, strcmp(state, "silent") == 0);
    }
    message_free(reply);
    end_close(e);
}

static struct end *declare_on(struct rig *rig)
{
    struct end *zero = rig_join(rig, "resnet", 0, 1, NULL, NULL);
    end_declare_one(zero, "w", 100);
    message_free(end_expect(zero, BODY(DECLARE_REPLY)));
    return zero;
}

static void expect_moved(struct end *worker, const struct end *to)
{
    envelope *change = end_expect(worker, BODY(ROUTE_CHANGE));
    assert_int_equal(change->route_change->tensors[0]->pieces[0]->lane, to->lanes[0]);
    message_free(change);
}

/* The process is killed before its pieces get a new owner (K4, W5). */
static void a_silent_local_aggregator_is_killed_and_its_pieces_move(void **state)
{
    struct rig *rig = *state;
    struct end *hung = rig_local_aggregator(rig, 1, "");
    struct end *zero = declare_on(rig);
    struct end *other = rig_aggregator(rig, 1);
    hung->answers = false;
    expect_moved(zero, other);
    int status;
    assert_int_equal(waitpid(hung->process, &status, 0), hung->process);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    for (int i = 0; i < RIG_SLOTS_MAX; i++)
        rig->processes[i] = 0;
    kept_log_expect("the service kills the process and starts another one");
}

static void a_silent_remote_aggregator_is_lost(void **state)
{
    struct rig *rig = *state;
    struct end *hung = rig_aggregator(rig, 1);
    struct end *zero = declare_on(rig);
    struct end *other = rig_aggregator(rig, 1);
    hung->answers = false;
    expect_moved(zero, other);
    end_expect_closed(hung);
    expect_state(rig, hung->aggregator, "lost");
    expect_state(rig, other->aggregator, "up");
    kept_log_expect("the aggregator counts as lost; see its host");
}

static void an_aggregator_that_answers_pings_stays_up(void **state)
{
    struct rig *rig = *state;
    struct end *idle = rig_aggregator(rig, 1);
    run_for(rig, 3 * TIMEOUT_NS);
    expect_state(rig, idle->aggregator, "up");
    assert_false(idle->is_gone);
}

static void a_slow_aggregator_is_shown_as_silent_until_it_answers(void **state)
{
    struct rig *rig = *state;
    rig->options.aggregator_timeout_ns = 10 * TIMEOUT_NS;
    rig_start_afresh(rig);
    struct end *slow = rig_aggregator(rig, 1);
    slow->answers = false;
    envelope *ping = end_expect(slow, BODY(PING_REQUEST));
    expect_state(rig, slow->aggregator, "up");
    run_for(rig, 4 * TIMEOUT_NS);
    expect_state(rig, slow->aggregator, "silent");
    end_answer(slow, ping);
    message_free(ping);
    slow->answers = true;
    rig_settle(rig);
    expect_state(rig, slow->aggregator, "up");
    assert_false(slow->is_gone);
    kept_log_expect(" answers again");
}

static void a_local_aggregator_may_have_more_time(void **state)
{
    struct rig *rig = *state;
    rig->options.local_timeout_ns = 4 * TIMEOUT_NS;
    rig_start_afresh(rig);
    struct end *local = rig_local_aggregator(rig, 1, ""), *remote = rig_aggregator(rig, 1);
    local->answers = remote->answers = false;
    await_gone(rig, remote);
    expect_state(rig, local->aggregator, "silent");
    assert_int_equal(waitpid(local->process, NULL, WNOHANG), 0);
    await_gone(rig, local);
}

/* Without a remote aggregator, the periods between pings are longer. The test therefore measures
 * time, and does not count periods. */
static void a_local_aggregator_keeps_its_time_when_a_remote_one_leaves(void **state)
{
    struct rig *rig = *state;
    rig->options.local_timeout_ns = 4 * TIMEOUT_NS;
    rig_start_afresh(rig);
    struct end *local = rig_local_aggregator(rig, 1, ""), *remote = rig_aggregator(rig, 1);
    local->answers = false;
    run_for(rig, 3 * TIMEOUT_NS / 2);
    end_close(remote);
    run_for(rig, 7 * TIMEOUT_NS / 4);
    assert_false(local->is_gone);
    await_gone(rig, local);
}

/* Silence counts only after a ping, and only after the coordinator has read all answers (K14). */
static void a_coordinator_that_is_stopped_repeatedly_loses_no_aggregator(void **state)
{
    struct rig *rig = *state;
    struct end *local = rig_local_aggregator(rig, 1, ""), *remote = rig_aggregator(rig, 1);
    for (int i = 0; i < 6; i++) {
        run_for(rig, TIMEOUT_NS / 5);
        stand_still(TIMEOUT_NS + TIMEOUT_NS / 5);
    }
    run_for(rig, TIMEOUT_NS);
    expect_state(rig, local->aggregator, "up");
    expect_state(rig, remote->aggregator, "up");
    assert_int_equal(waitpid(local->process, NULL, WNOHANG), 0);
}

static void without_a_timeout_a_silent_aggregator_stays(void **state)
{
    struct rig *rig = *state;
    rig->options.aggregator_timeout_ns = 0;
    rig_start_afresh(rig);
    struct end *hung = rig_aggregator(rig, 1);
    hung->answers = false;
    end_expect_none(hung, BODY(PING_REQUEST));
    run_for(rig, 2 * TIMEOUT_NS);
    assert_false(hung->is_gone);
}

static void the_end_of_the_service_does_not_wait_for_an_absent_aggregator(void **state)
{
    struct rig *rig = *state;
    struct end *left = rig_aggregator(rig, 1);
    end_close(left);
    rig_settle(rig);
    uint64_t started_ns = clock_now_ns();
    coordinator_signal(rig->coordinator, SIGTERM);
    while (coordinator_step(rig->coordinator, clock_now_ns() + NS_PER_S) > 0)
        assert_true(clock_now_ns() < started_ns + 60 * NS_PER_S);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_silent_local_aggregator_is_killed_and_its_pieces_move),
        CASE(a_silent_remote_aggregator_is_lost),
        CASE(an_aggregator_that_answers_pings_stays_up),
        CASE(a_slow_aggregator_is_shown_as_silent_until_it_answers),
        CASE(a_coordinator_that_is_stopped_repeatedly_loses_no_aggregator),
        CASE(a_local_aggregator_may_have_more_time),
        CASE(a_local_aggregator_keeps_its_time_when_a_remote_one_leaves),
        CASE(without_a_timeout_a_silent_aggregator_stays),
        CASE(the_end_of_the_service_does_not_wait_for_an_absent_aggregator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
