/* Tests planned ends of aggregators. The tasks of such an aggregator move first, another aggregator
 * starts in its place, and the answer names the remaining tasks (K94). */
#include "test/unit/coordinator/moving_case.h"

#include "svc/base/clock.h"
#include "svc/coordinator/aggregator/busy_time.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/order/leaving.h"
#include "svc/reduce/update.h"

#include <string.h>

#define PATIENCE_MS 60000

static struct service *service_of(struct rig *rig) { return rig->coordinator->service; }

static void say_ending(struct end *e, uint64_t left_ms)
{
    WIRE(AggregatorEnding) ending = GRADPOOL__WIRE__AGGREGATOR_ENDING__INIT;
    envelope message = GRADPOOL__WIRE__ENVELOPE__INIT;
    ending.left_ms = left_ms;
    message.body_case = BODY(AGGREGATOR_ENDING);
    message.aggregator_ending = &ending;
    assert_int_equal(channel_send(e->channel, &message), 0);
}

/* Expects that the aggregator ends. The text of its last message names the lost states; "": no
 * state is lost. */
static void expect_end(struct end *e, const char *loses)
{
    envelope *drain = end_expect(e, BODY(DRAIN_REQUEST));
    if (*loses ? !strstr(drain->drain_request->loses, loses) : *drain->drain_request->loses)
        fail_msg("'%s' is lost, not '%s'", drain->drain_request->loses, loses);
    message_free(drain);
}

static void expect_route(struct end *worker, uint32_t lane)
{
    envelope *change = end_expect(worker, BODY(ROUTE_CHANGE));
    assert_int_equal(change->route_change->tensors[0]->pieces[0]->lane, lane);
    message_free(change);
}

static void has_state(struct moving *m)
{
    struct job *job = jobs_find_id(service_of(m->rig), m->job);
    job->tensors[0]->terms.rule = UPDATE_ADAM;
}

static void an_aggregator_without_tasks_ends_at_once(void **state)
{
    struct end *e = rig_aggregator(*state, 1);
    say_ending(e, PATIENCE_MS);
    expect_end(e, "");
    kept_log_expect(" ends; no state is lost");
    kept_log_expect(" begins to end: its tasks and copies move to others, within ");
}

static void tasks_of_a_stopping_aggregator_move_to_another_first(void **state)
{
    struct moving m = moving_begin(*state);
    has_state(&m);
    say_ending(m.source, PATIENCE_MS);
    expect_route(m.worker, m.target->lanes[0]);
    expect_end(m.source, "");
    WIRE(Piece) piece;
    moving_declare(m.worker, "more", &piece);
    assert_int_equal(piece.lane, m.target->lanes[0]);
    kept_log_expect("their aggregator is ending");
}

/* Returns whether a timer waits for a deadline after more than a hundred years. */
static bool has_far_timer(struct service *s)
{
    list_for_each_entry (struct timer, timer, &s->loop->timers, link)
        if (timer->deadline_ns > clock_now_ns() + UINT64_C(100) * 365 * 86400 * NS_PER_S)
            return true;
    return false;
}

static void an_end_without_a_deadline_waits_for_its_moves(void **state)
{
    struct moving m = moving_begin(*state);
    has_state(&m);
    m.target->ignores = BODY(INSTALL_REQUEST);
    say_ending(m.source, UINT64_MAX);
    envelope *install = end_expect(m.target, BODY(INSTALL_REQUEST));
    rig_settle(m.rig);
    assert_true(has_far_timer(service_of(m.rig)));
    moving_go_on(&m, install);
    expect_route(m.worker, m.target->lanes[0]);
    expect_end(m.source, "");
}

static void tasks_that_move_to_a_stopping_aggregator_leave_it_too(void **state)
{
    struct moving m = moving_begin(*state);
    envelope *install = moving_stop_at_install(&m);
    say_ending(m.target, PATIENCE_MS);
    rig_settle(m.rig);
    end_expect_none(m.target, BODY(DRAIN_REQUEST));
    moving_go_on(&m, install);
    expect_route(m.worker, m.target->lanes[0]);
    expect_route(m.worker, m.source->lanes[0]);
    expect_end(m.target, "");
}

static void a_drained_lane_is_used_if_no_other_lane_is_up(void **state)
{
    struct moving m = moving_begin(*state);
    moving_drain(&m, m.target->lanes[0], 0, false);
    message_free(moving_answer(&m, NULL));
    say_ending(m.source, PATIENCE_MS);
    expect_route(m.worker, m.target->lanes[0]);
    expect_end(m.source, "");
}

static void at_the_deadline_jobs_and_lost_states_are_named(void **state)
{
    struct rig *rig = *state;
    struct moving m = {.rig = rig, .source = rig_aggregator(rig, 1)};
    m.worker = rig_join(rig, "resnet", 0, 1, &m.session, &m.job);
    moving_declare(m.worker, "w", &m.piece);
    has_state(&m);
    say_ending(m.source, 50);
    expect_end(m.source, "job resnet loses the state of 1 tensor");
}

static void tasks_that_cannot_leave_in_time_are_named_with_the_reason(void **state)
{
    struct moving m = moving_begin(*state);
    has_state(&m);
    m.target->refuses = BODY(PLACE_REQUEST);
    say_ending(m.source, 1500);
    expect_end(m.source, "(job resnet: it does not want to)");
}

static void an_aggregator_that_joins_in_time_gets_the_task(void **state)
{
    struct rig *rig = *state;
    struct moving m = {.rig = rig, .source = rig_aggregator(rig, 1)};
    m.worker = rig_join(rig, "resnet", 0, 1, &m.session, &m.job);
    moving_declare(m.worker, "w", &m.piece);
    say_ending(m.source, PATIENCE_MS);
    rig_settle(rig);
    end_expect_none(m.source, BODY(DRAIN_REQUEST));
    m.target = rig_aggregator(rig, 1);
    expect_route(m.worker, m.target->lanes[0]);
    expect_end(m.source, "");
}

/* --- reports --- */

/* A report of figures: the job has one state on the source, and this state needs no copy. */
struct empty_report {
    WIRE(StatsReply) stats;
    WIRE(LaneUse) lane, *lanes;
    WIRE(JobUse) job, *jobs;
    envelope message;
};

static void empty_report_fill(struct empty_report *r, const struct moving *m)
{
    *r = (struct empty_report){.stats = GRADPOOL__WIRE__STATS_REPLY__INIT,
                               .lane = GRADPOOL__WIRE__LANE_USE__INIT,
                               .job = GRADPOOL__WIRE__JOB_USE__INIT,
                               .message = GRADPOOL__WIRE__ENVELOPE__INIT};
    r->job.job_id = m->job;
    r->job.states = r->job.empty = 1;
    r->jobs = &r->job;
    r->lane.lane = m->source->lanes[0];
    r->lane.jobs = &r->jobs;
    r->lane.n_jobs = 1;
    r->lanes = &r->lane;
    r->stats.lanes = &r->lanes;
    r->stats.n_lanes = 1;
    r->message.body_case = BODY(STATS_REPLY);
    r->message.stats_reply = &r->stats;
}

/* Starts a job with a state on the only aggregator. In the last report before the stop, no state
 * needs a copy. */
static void begin_reported(struct moving *m, struct end *source, struct empty_report *ret_report)
{
    struct rig *rig = source->rig;
    *m = (struct moving){.rig = rig, .source = source};
    m->source->ignores = BODY(STATS_REQUEST);
    m->worker = rig_join(rig, "resnet", 0, 1, &m->session, &m->job);
    moving_declare(m->worker, "w", &m->piece);
    has_state(m);
    empty_report_fill(ret_report, m);
    struct aggregator *a = aggregator_find(service_of(rig), m->source->aggregator);
    assert_true(stats_keep(a, &ret_report->message));
}

static void a_report_from_before_the_stop_does_not_show_that_no_state_is_lost(void **state)
{
    struct empty_report report;
    struct moving m;
    begin_reported(&m, rig_aggregator(*state, 1), &report);
    say_ending(m.source, 50);
    expect_end(m.source, "job resnet loses the state of 1 tensor");
}

/* --- local aggregators --- */

static void start_local(struct rig *rig, uint16_t data_port)
{
    rig->options.aggregators = 1;
    rig->options.cores = "0";
    rig->options.lanes_per_core = 1;
    rig->options.data_port = data_port;
    rig_start_afresh(rig);
}

static struct end *join_local(struct rig *rig)
{
    return rig_local_aggregator(rig, 1, rig->grants[(rig->starts - 1) % RIG_SLOTS_MAX]);
}

static void await_starts(struct rig *rig, uint32_t starts)
{
    uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
    while (rig->starts < starts) {
        if (clock_now_ns() > deadline_ns)
            fail_msg("%u starts, not %u", rig->starts, starts);
        rig_step_within(rig, NS_PER_MS);
    }
}

/* Ends two processes: the process of the rig's aggregator, and the process that the coordinator has
 * started in its place. */
static void end_process(struct rig *rig, struct end *e, int staged)
{
    int process = e->process;
    end_close(e);
    rig_kill(rig, process);
    rig_kill(rig, staged);
    rig_settle(rig);
}

static int staged_process(struct rig *rig) { return service_of(rig)->fleet->slots[0].process.pid; }

static void a_local_aggregator_has_a_successor_before_its_end_and_no_crash_is_counted(void **state)
{
    struct rig *rig = *state;
    start_local(rig, 0);
    struct end *old = join_local(rig);
    struct moving m = {.rig = rig, .worker = rig_join(rig, "resnet", 0, 1, &m.session, &m.job)};
    moving_declare(m.worker, "w", &m.piece);
    for (uint32_t i = 2; i < 2 + 2 * RESTARTS_MAX; i++) {
        int staged = staged_process(rig);
        has_state(&m);
        say_ending(old, PATIENCE_MS);
        await_starts(rig, i);
        end_expect_none(old, BODY(DRAIN_REQUEST));
        struct end *next = join_local(rig);
        expect_route(m.worker, next->lanes[0]);
        expect_end(old, "");
        end_process(rig, old, staged);
        old = next;
    }
    assert_int_equal(rig->starts, 1 + 2 * RESTARTS_MAX);
}

static void with_fixed_ports_the_next_aggregator_starts_when_the_ports_are_free(void **state)
{
    struct rig *rig = *state;
    start_local(rig, 20000);
    int staged = staged_process(rig);
    struct end *old = join_local(rig), *other = rig_aggregator(rig, 1);
    WIRE(Piece) piece;
    struct end *worker = rig_join(rig, "resnet", 0, 1, NULL, NULL);
    moving_declare(worker, "w", &piece);
    if (piece.lane == other->lanes[0]) {
        struct end *second = rig_join(rig, "bert", 0, 1, NULL, NULL);
        moving_declare(second, "w", &piece);
        worker = second;
    }
    say_ending(old, PATIENCE_MS);
    expect_route(worker, other->lanes[0]);
    expect_end(old, "");
    assert_int_equal(rig->starts, 1);
    end_process(rig, old, staged);
    await_starts(rig, 2);
}

static bool is_done;
static void note_done(struct service *s) { is_done = true; }

static void await_done(struct rig *rig)
{
    uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
    while (!is_done && clock_now_ns() < deadline_ns)
        rig_step_within(rig, NS_PER_MS);
    assert_true(is_done);
}

static void all_local_aggregators_hand_over_their_tasks_and_none_is_started_again(void **state)
{
    struct rig *rig = *state;
    start_local(rig, 0);
    int staged = staged_process(rig);
    struct end *local = join_local(rig);
    struct moving m = {.rig = rig, .worker = rig_join(rig, "resnet", 0, 1, &m.session, &m.job)};
    moving_declare(m.worker, "w", &m.piece);
    struct end *other = rig_aggregator(rig, 1);
    is_done = false;
    state_leaves(service_of(rig), clock_now_ns() + 60 * NS_PER_S, note_done);
    expect_route(m.worker, other->lanes[0]);
    expect_end(local, "");
    assert_false(is_done);
    end_process(rig, local, staged);
    await_done(rig);
    assert_int_equal(rig->starts, 1);
}

static void without_other_aggregators_jobs_end_and_then_the_local_ones_at_once(void **state)
{
    struct rig *rig = *state;
    start_local(rig, 0);
    int staged = staged_process(rig);
    struct end *local = join_local(rig);
    struct moving m = {.rig = rig, .worker = rig_join(rig, "resnet", 0, 1, &m.session, &m.job)};
    moving_declare(m.worker, "w", &m.piece);
    has_state(&m);
    is_done = false;
    state_leaves(service_of(rig), clock_now_ns() + 3600 * NS_PER_S, note_done);
    envelope *failure = end_expect(m.worker, BODY(JOB_FAILURE));
    assert_non_null(strstr(failure->job_failure->text, "1 tensor could not move to other"));
    message_free(failure);
    expect_end(local, "job resnet loses the state of 1 tensor");
    end_process(rig, local, staged);
    await_done(rig);
}

static void a_report_after_the_stop_shows_that_no_state_is_lost(void **state)
{
    struct empty_report report;
    struct moving m;
    ((struct rig *)*state)->options.measure_ns = 3600 * NS_PER_S; /* no other requests arrive */
    start_local(*state, 0);
    begin_reported(&m, join_local(*state), &report);
    is_done = false;
    state_leaves(service_of(*state), clock_now_ns() + 3600 * NS_PER_S, note_done);
    envelope *request = end_expect(m.source, BODY(STATS_REQUEST));
    end_expect_none(m.source, BODY(DRAIN_REQUEST));
    report.message.id = request->id;
    message_free(request);
    assert_int_equal(channel_send(m.source->channel, &report.message), 0);
    expect_end(m.source, "");
    kept_log_expect(" ends; no state is lost");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(an_aggregator_without_tasks_ends_at_once),
        CASE(tasks_of_a_stopping_aggregator_move_to_another_first),
        CASE(an_end_without_a_deadline_waits_for_its_moves),
        CASE(tasks_that_move_to_a_stopping_aggregator_leave_it_too),
        CASE(a_drained_lane_is_used_if_no_other_lane_is_up),
        CASE(at_the_deadline_jobs_and_lost_states_are_named),
        CASE(tasks_that_cannot_leave_in_time_are_named_with_the_reason),
        CASE(an_aggregator_that_joins_in_time_gets_the_task),
        CASE(a_report_from_before_the_stop_does_not_show_that_no_state_is_lost),
        CASE(a_report_after_the_stop_shows_that_no_state_is_lost),
        CASE(a_local_aggregator_has_a_successor_before_its_end_and_no_crash_is_counted),
        CASE(with_fixed_ports_the_next_aggregator_starts_when_the_ports_are_free),
        CASE(all_local_aggregators_hand_over_their_tasks_and_none_is_started_again),
        CASE(without_other_aggregators_jobs_end_and_then_the_local_ones_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
