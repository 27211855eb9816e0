/* Tests signals and `gradpool stop`. Jobs either continue at the next start, or end. */
#include "test/unit/coordinator/coordinator_rig.h"

#include "svc/base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct worker {
    struct end *end;
    uint64_t session;
    uint32_t job;
};

static struct worker join(struct rig *rig)
{
    struct worker w = {0};
    w.end = rig_join(rig, "resnet", 0, 1, &w.session, &w.job);
    return w;
}

static void step_until_ended(struct rig *rig)
{
    uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
    while (coordinator_step(rig->coordinator, clock_now_ns() + NS_PER_MS) > 0)
        assert_true(clock_now_ns() < deadline_ns);
}

static bool is_ending(struct rig *rig) { return coordinator_step(rig->coordinator, 0) == 0; }

static void with_options(struct rig *rig, bool ends_jobs, bool keeps_jobs)
{
    rig_crash(rig);
    rig->options.ends_jobs = ends_jobs;
    rig->options.keeps_jobs = keeps_jobs;
    rig_start(rig);
}

/* Expects that the end is sent to the worker before it is sent to the aggregator. */
static void expect_end_in_order(struct rig *rig, struct worker *w, struct end *lane,
                                const char *text)
{
    envelope *message = end_expect(w->end, BODY(JOB_FAILURE));
    assert_int_equal(message->job_failure->code, -ESHUTDOWN);
    assert_string_equal(message->job_failure->text, text);
    message_free(message);
    message_free(end_expect(lane, BODY(DRAIN_REQUEST)));
    assert_false(is_ending(rig));
    end_close(lane);
    step_until_ended(rig);
    assert_int_equal(coordinator_run(rig->coordinator), 0);
}

static void expect_resumed(struct rig *rig, const struct worker *w)
{
    envelope request;
    WIRE(JoinRequest) again;
    struct end *e = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    join_request(&request, &again, "resnet", 0, 1);
    again.session = w->session;
    again.job_id = w->job;
    envelope *reply = end_ask(e, &request);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    assert_int_equal(reply->join_reply->job_id, w->job);
    message_free(reply);
}

static void sigterm_leaves_a_live_job_to_the_next_start(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_aggregator(rig, 1);
    struct worker zero = join(rig);
    coordinator_signal(rig->coordinator, SIGTERM);
    assert_true(is_ending(rig));
    assert_int_equal(coordinator_run(rig->coordinator), 0);
    end_expect_none(zero.end, BODY(JOB_FAILURE));
    end_expect_none(lane, BODY(DRAIN_REQUEST));
    with_options(rig, false, false);
    expect_resumed(rig, &zero);
    kept_log_expect("as long as it takes");
}

static void sigterm_leaves_two_live_jobs_and_logs_their_number(void **state)
{
    struct rig *rig = *state;
    rig_aggregator(rig, 1);
    join(rig);
    rig_join(rig, "vgg", 0, 1, NULL, NULL);
    coordinator_signal(rig->coordinator, SIGTERM);
    assert_true(is_ending(rig));
    kept_log_expect(
        "gradpool serve ends: 2 jobs train on without a coordinator; local aggregators wait "
        "for the next start with --state-dir ");
}

static void an_aggregator_that_is_still_starting_is_not_left_behind(void **state)
{
    struct rig *rig = *state;
    rig->options.aggregators = 2;
    with_options(rig, false, false);
    rig_local_aggregator(rig, 1, rig->grants[0]);
    join(rig);
    assert_int_equal(rig->starts, 2);
    coordinator_signal(rig->coordinator, SIGTERM);
    assert_true(is_ending(rig));
    assert_int_equal(rig->stops, 1); /* the coordinator has stopped the other aggregator */
}

static void sigterm_without_a_job_ends_the_aggregators(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_aggregator(rig, 1);
    coordinator_signal(rig->coordinator, SIGTERM);
    message_free(end_expect(lane, BODY(DRAIN_REQUEST)));
    end_close(lane);
    step_until_ended(rig);
    assert_int_equal(coordinator_run(rig->coordinator), 0);
}

static void sigterm_with_stop_jobs_ends_the_jobs_first(void **state)
{
    struct rig *rig = *state;
    with_options(rig, true, false);
    struct end *lane = rig_aggregator(rig, 1);
    struct worker zero = join(rig);
    coordinator_signal(rig->coordinator, SIGTERM);
    expect_end_in_order(rig, &zero, lane, "the operator stopped the service (SIGTERM)");
    kept_log_expect("SIGTERM ends the jobs: ");
}

/* Simulates a start by systemd. The aggregator belongs to the unit. */
static struct end *be_a_unit(struct rig *rig, const char *pid, bool keeps_jobs)
{
    setenv("SYSTEMD_EXEC_PID", pid, 1);
    rig->options.aggregators = 1;
    with_options(rig, false, keeps_jobs);
    return rig_local_aggregator(rig, 1, rig->grants[0]);
}

static const char *own_pid(void)
{
    static char pid[16];
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    return pid;
}

static void the_main_process_of_a_unit_ends_the_jobs_of_its_aggregators(void **state)
{
    struct rig *rig = *state;
    struct end *lane = be_a_unit(rig, own_pid(), false);
    lane->answers = false;
    struct worker zero = join(rig);
    coordinator_signal(rig->coordinator, SIGTERM);
    message_free(end_expect(zero.end, BODY(JOB_FAILURE)));
    message_free(end_expect(lane, BODY(DRAIN_REQUEST)));
    coordinator_signal(rig->coordinator, SIGTERM);
    step_until_ended(rig);
    kept_log_expect(
        "local aggregators may end with this systemd unit; with KillMode=process they stay");
}

static void expect_left(struct rig *rig)
{
    struct worker zero = join(rig);
    coordinator_signal(rig->coordinator, SIGTERM);
    assert_true(is_ending(rig));
    end_expect_none(zero.end, BODY(JOB_FAILURE));
}

static void the_options_of_a_unit_can_leave_the_jobs_running(void **state)
{
    be_a_unit(*state, own_pid(), true);
    expect_left(*state);
}

static void a_process_that_a_unit_has_started_is_not_the_unit(void **state)
{
    be_a_unit(*state, "1", false);
    expect_left(*state);
}

static void a_unit_leaves_jobs_to_aggregators_of_other_hosts(void **state)
{
    struct rig *rig = *state;
    setenv("SYSTEMD_EXEC_PID", own_pid(), 1);
    with_options(rig, false, false);
    rig_aggregator(rig, 1);
    expect_left(rig);
}

static int tear_down(void **state)
{
    unsetenv("SYSTEMD_EXEC_PID");
    return rig_teardown(state);
}

static void sigint_ends_jobs_then_aggregators(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_aggregator(rig, 1);
    struct worker zero = join(rig);
    coordinator_signal(rig->coordinator, SIGINT);
    expect_end_in_order(rig, &zero, lane, "the operator stopped the service (SIGINT)");
}

static envelope *ask_to_stop(struct end *e)
{
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    WIRE(StopRequest) stop = GRADPOOL__WIRE__STOP_REQUEST__INIT;
    request.body_case = BODY(STOP_REQUEST);
    request.stop_request = &stop;
    return end_ask(e, &request);
}

static void an_operator_stops_the_service_over_the_unix_socket_only(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_aggregator(rig, 1);
    struct worker zero = join(rig);
    envelope *reply = ask_to_stop(rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR));
    assert_int_equal(reply->body_case, BODY(FAILURE));
    assert_int_equal(reply->failure->code, -EPERM);
    assert_non_null(strstr(reply->failure->text, "the service is stopped on its own host only"));
    message_free(reply);
    end_expect_none(zero.end, BODY(JOB_FAILURE));
    struct end *operator= rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    reply = ask_to_stop(operator);
    assert_int_equal(reply->body_case, BODY(DONE));
    message_free(reply);
    reply = ask_to_stop(operator); /* a second request must not count as a second signal */
    assert_int_equal(reply->body_case, BODY(DONE));
    message_free(reply);
    expect_end_in_order(rig, &zero, lane, "the operator stopped the service (gradpool stop)");
}

static void sighup_changes_nothing(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_aggregator(rig, 1);
    struct worker zero = join(rig);
    coordinator_signal(rig->coordinator, SIGHUP);
    end_expect_none(zero.end, BODY(JOB_FAILURE));
    end_expect_none(lane, BODY(DRAIN_REQUEST));
    assert_false(is_ending(rig));
}

static void a_second_signal_ends_the_service_though_a_remote_aggregator_does_not_drain(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_aggregator(rig, 1);
    lane->answers = false;
    uint64_t began_ns = clock_now_ns();
    coordinator_signal(rig->coordinator, SIGINT);
    rig_settle(rig);
    assert_false(is_ending(rig));
    coordinator_signal(rig->coordinator, SIGTERM);
    step_until_ended(rig);
    /* the drain has not reached its deadline */
    assert_true(clock_now_ns() - began_ns < 9 * NS_PER_S);
    assert_int_equal(coordinator_run(rig->coordinator), SIGTERM);
}

static void a_join_while_the_service_ends_is_refused(void **state)
{
    struct rig *rig = *state;
    envelope request;
    WIRE(JoinRequest) more;
    struct end *lane = rig_aggregator(rig, 1);
    struct worker zero = join(rig);
    struct end *late = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    coordinator_signal(rig->coordinator, SIGINT);
    join_request(&request, &more, "late", 0, 1);
    end_ask_refused(late, &request, -ESHUTDOWN, "is stopping");
    expect_end_in_order(rig, &zero, lane, "the operator stopped the service (SIGINT)");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, tear_down)

static int run_cases(void)
{
    const struct CMUnitTest tests[] = {
        CASE(sigterm_leaves_a_live_job_to_the_next_start),
        CASE(sigterm_leaves_two_live_jobs_and_logs_their_number),
        CASE(an_aggregator_that_is_still_starting_is_not_left_behind),
        CASE(sigterm_without_a_job_ends_the_aggregators),
        CASE(sigterm_with_stop_jobs_ends_the_jobs_first),
        CASE(the_main_process_of_a_unit_ends_the_jobs_of_its_aggregators),
        CASE(the_options_of_a_unit_can_leave_the_jobs_running),
        CASE(a_process_that_a_unit_has_started_is_not_the_unit),
        CASE(a_unit_leaves_jobs_to_aggregators_of_other_hosts),
        CASE(sigint_ends_jobs_then_aggregators),
        CASE(an_operator_stops_the_service_over_the_unix_socket_only),
        CASE(sighup_changes_nothing),
        CASE(a_second_signal_ends_the_service_though_a_remote_aggregator_does_not_drain),
        CASE(a_join_while_the_service_ends_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Runs the tests in a child process. The parent of this program may be the first process of a
 * container, and a coordinator that such a process starts would end jobs on SIGTERM (K107). */
int main(void)
{
    int status;
    pid_t child = fork();
    if (child == 0)
        return run_cases();
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
