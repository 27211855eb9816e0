/* Tests aggregators that join, disconnect and return, and the pieces that they serve. */
#include "test/unit/coordinator/coordinator_rig.h"

#include "svc/base/clock.h"
#include "svc/coordinator/fleet/fleet.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

static WIRE(PieceHeld) held(uint32_t job, const WIRE(Piece) * piece)
{
    WIRE(PieceHeld) h = GRADPOOL__WIRE__PIECE_HELD__INIT;
    h.job_id = job;
    h.piece = piece->id;
    h.lane = piece->lane;
    h.epoch = piece->epoch;
    return h;
}

static WIRE(Piece) declare(struct end *e, const char *name)
{
    end_declare_one(e, name, 100);
    envelope *reply = end_expect(e, BODY(DECLARE_REPLY));
    WIRE(Piece) piece = *reply->declare_reply->tensors[0]->pieces[0];
    message_free(reply);
    return piece;
}

static void drop_placed(struct end *lane) { message_free(end_expect(lane, BODY(PLACE_REQUEST))); }

static void pieces_of_a_dead_aggregator_get_a_new_lane_and_epoch(void **state)
{
    struct rig *rig = *state;
    struct end *first = rig_local_aggregator(rig, 1, "");
    struct end *zero = rig_join(rig, "resnet", 0, 2, NULL, NULL);
    struct end *one = rig_join(rig, "resnet", 1, 2, NULL, NULL);
    WIRE(Piece) piece = declare(zero, "w");
    struct end *second = rig_aggregator(rig, 1);
    second->answers = false;
    rig_kill(rig, first->process);

    envelope *place = end_expect(second, BODY(PLACE_REQUEST));
    assert_true(place->place_request->recovering);
    assert_int_equal(place->place_request->epoch, 2);
    assert_int_equal(place->place_request->n_pieces, 1);
    assert_int_equal(place->place_request->pieces[0]->piece, piece.id);
    assert_int_equal(place->place_request->pieces[0]->task, piece.task);
    end_expect_none(zero, BODY(ROUTE_CHANGE)); /* the new owner has not received the pieces yet */

    end_answer(second, place);
    message_free(place);
    for (int i = 0; i < 2; i++) {
        envelope *change = end_expect(i ? one : zero, BODY(ROUTE_CHANGE));
        const WIRE(Piece) *moved = change->route_change->tensors[0]->pieces[0];
        assert_int_equal(moved->id, piece.id);
        assert_int_equal(moved->lane, second->lanes[0]);
        assert_int_equal(moved->epoch, 2);
        message_free(change);
    }
}

/* The lane has not completed earlier operations of these pieces yet. */
static void a_lane_that_cannot_take_pieces_yet_gets_the_request_again(void **state)
{
    struct rig *rig = *state;
    struct end *first = rig_local_aggregator(rig, 1, "");
    struct end *zero = rig_join(rig, "resnet", 0, 1, NULL, NULL);
    WIRE(Piece) piece = declare(zero, "w");
    struct end *second = rig_aggregator(rig, 1);
    second->refuses = BODY(PLACE_REQUEST);
    second->refusal = -EAGAIN;
    rig_kill(rig, first->process);
    drop_placed(second);
    end_expect_none(zero, BODY(ROUTE_CHANGE));
    end_expect_none(zero, BODY(TENSOR_FAILURE));
    second->refuses = 0;
    drop_placed(second);
    envelope *change = end_expect(zero, BODY(ROUTE_CHANGE));
    assert_int_equal(change->route_change->tensors[0]->pieces[0]->id, piece.id);
    message_free(change);
}

static void a_declare_that_waits_for_a_lost_aggregator_goes_to_the_next(void **state)
{
    struct rig *rig = *state;
    struct end *first = rig_local_aggregator(rig, 1, "");
    struct end *zero = rig_join(rig, "resnet", 0, 1, NULL, NULL);
    first->answers = false;
    end_declare_one(zero, "w", 100);
    message_free(end_expect(first, BODY(PLACE_REQUEST)));
    rig_kill(rig, first->process);
    drop_placed(rig_aggregator(rig, 1));
    message_free(end_expect(zero, BODY(DECLARE_REPLY)));
}

static void a_process_that_closes_its_connection_but_lives_is_not_replaced(void **state)
{
    struct rig *rig = *state;
    struct end *first = rig_local_aggregator(rig, 1, "");
    struct end *zero = rig_join(rig, "resnet", 0, 1, NULL, NULL);
    declare(zero, "w");
    struct end *second = rig_aggregator(rig, 1);
    end_close(first);
    /* the first owner was not stopped and could still write */
    end_expect_none(second, BODY(PLACE_REQUEST));
    rig_kill(rig, first->process);
    drop_placed(second);
}

static void expect_notice(struct end *worker, const char *part)
{
    envelope *message = end_expect(worker, BODY(NOTICE));
    if (!strstr(message->notice->text, part))
        fail_msg("no \"%s\" in: %s", part, message->notice->text);
    message_free(message);
}

static void without_another_lane_the_job_waits_and_names_the_aggregator(void **state)
{
    struct rig *rig = *state;
    struct end *first = rig_local_aggregator(rig, 1, "");
    struct end *zero = rig_join(rig, "resnet", 0, 1, NULL, NULL);
    declare(zero, "w");
    rig_kill(rig, first->process);
    expect_notice(zero, "aggregator 1 (node7, pid");
    end_expect_none(zero, BODY(JOB_FAILURE));
    drop_placed(rig_aggregator(rig, 1));
    envelope *message = end_expect(zero, BODY(NOTICE));
    assert_string_equal(message->notice->text, ""); /* the job continues */
    message_free(message);
}

/* One case tests all three time limits, because the test of each limit requires a wait. */
static void an_aggregator_that_is_away_too_long_is_lost(void **state)
{
    struct rig *rig = *state;
    struct end *remote = rig_aggregator(rig, 1);
    struct end *zero = rig_join(rig, "resnet", 0, 1, NULL, NULL);
    declare(zero, "w");
    struct end *hung = rig_local_aggregator(rig, 1, "");
    struct end *stays = rig_aggregator(rig, 1);
    struct end *left = rig_join(rig, "bert", 0, 2, NULL, NULL);
    struct end *away = rig_join(rig, "bert", 1, 2, NULL, NULL);
    end_close(remote);
    end_close(hung);
    end_close(away);
    envelope *message = end_expect(left, BODY(JOB_FAILURE));
    assert_non_null(strstr(message->job_failure->text, "rank 1 of job bert (elsewhere, pid 1001)"));
    message_free(message);
    drop_placed(stays);
    rig_settle(rig);
    assert_int_equal(kill(hung->process, 0), 0);
    /* the process was killed */
    assert_int_equal(waitpid(hung->process, NULL, WNOHANG), hung->process);
    rig->processes[0] = 0;
    kept_log_expect(
        " runs, but has not renewed its control connection: the service kills the process");
}

static void a_remote_aggregator_that_sends_a_goodbye_is_not_awaited(void **state)
{
    struct rig *rig = *state;
    struct end *first = rig_aggregator(rig, 1);
    struct end *zero = rig_join(rig, "resnet", 0, 1, NULL, NULL);
    WIRE(Piece) piece = declare(zero, "w");
    struct end *second = rig_aggregator(rig, 1);
    uint64_t started_ns = clock_now_ns();
    end_say_goodbye(first);
    end_expect_closed(first);
    envelope *change = end_expect(zero, BODY(ROUTE_CHANGE));
    assert_int_equal(change->route_change->tensors[0]->pieces[0]->id, piece.id);
    assert_int_equal(change->route_change->tensors[0]->pieces[0]->lane, second->lanes[0]);
    message_free(change);
    end_say_goodbye(second); /* no lane remains */
    envelope *notice = end_expect(zero, BODY(NOTICE));
    assert_non_null(strstr(notice->notice->text, "aggregator 2 (node7, pid"));
    message_free(notice);
    /* the aggregator has reported its own end; without this report the coordinator would wait for
     * its return */
    assert_true(clock_now_ns() - started_ns < UINT64_C(10) * NS_PER_S);
}

/* The aggregator's process could still write to workers, so the coordinator waits for the end of
 * the process (K4). */
static void a_local_aggregator_that_sends_a_goodbye_is_lost_when_its_process_ends(void **state)
{
    struct rig *rig = *state;
    struct end *first = rig_local_aggregator(rig, 1, "");
    struct end *zero = rig_join(rig, "resnet", 0, 1, NULL, NULL);
    declare(zero, "w");
    end_say_goodbye(first);
    end_expect_none(zero, BODY(NOTICE));
    rig_kill(rig, first->process);
    message_free(end_expect(zero, BODY(NOTICE)));
}

static void a_job_without_pieces_on_the_lost_lane_gets_no_message(void **state)
{
    struct rig *rig = *state;
    struct end *first = rig_local_aggregator(rig, 1, "");
    struct end *zero = rig_join(rig, "resnet", 0, 1, NULL, NULL);
    rig_kill(rig, first->process);
    end_expect_none(zero, BODY(JOB_FAILURE));
}

static struct end *start_local(struct rig *rig)
{
    coordinator_destroy(rig->coordinator);
    rig->options.aggregators = 1;
    rig_start(rig);
    rig_settle(rig);
    assert_int_equal(rig->starts, 1);
    return rig_local_aggregator(rig, 1, rig->grants[0]);
}

static void a_local_aggregator_is_started_again_and_gets_its_pieces_back(void **state)
{
    struct rig *rig = *state;
    struct end *first = start_local(rig);
    struct end *zero = rig_join(rig, "resnet", 0, 1, NULL, NULL);
    WIRE(Piece) piece = declare(zero, "w");
    rig_kill(rig, rig->processes[0]); /* process started by the provisioner */
    rig_kill(rig, first->process);    /* process reported by the aggregator */
    while (rig->starts < 2)
        rig_settle(rig);
    end_expect_none(zero, BODY(JOB_FAILURE));
    struct end *second = rig_local_aggregator(rig, 1, rig->grants[1]);
    envelope *change = end_expect(zero, BODY(ROUTE_CHANGE));
    const WIRE(Piece) *moved = change->route_change->tensors[0]->pieces[0];
    assert_int_equal(moved->id, piece.id);
    assert_int_equal(moved->epoch, 2);
    assert_int_equal(moved->lane, second->lanes[0]);
    assert_true(moved->lane != piece.lane);
    message_free(change);
}

static void a_local_aggregator_that_keeps_dying_is_left_alone_for_a_while(void **state)
{
    struct rig *rig = *state;
    rig->options.aggregators = 1;
    coordinator_destroy(rig->coordinator);
    rig_start(rig);
    for (int i = 0; i < 20; i++) {
        rig_kill(rig, rig->processes[0]);
        rig_settle(rig);
    }
    assert_int_equal(rig->starts, 5);
    kept_log_expect("has ended 5 times within a minute: next try in ");
}

static void the_service_ends_with_the_reason_when_no_local_aggregator_can_start(void **state)
{
    struct rig *rig = *state;
    coordinator_destroy(rig->coordinator);
    rig->options.aggregators = 1;
    rig->locals_give_up = true;
    rig_start(rig);
    do
        rig_kill(rig, rig->processes[0]);
    while (coordinator_step(rig->coordinator, clock_now_ns() + NS_PER_S) == 1);
    assert_int_equal(rig->starts, START_FAILURES_MAX);
    assert_int_equal(coordinator_run(rig->coordinator), -EIO);
}

static void a_job_gets_the_reason_when_no_local_aggregator_can_start(void **state)
{
    struct rig *rig = *state;
    coordinator_destroy(rig->coordinator);
    rig->options.aggregators = 1;
    rig->locals_give_up = true;
    rig_start(rig);
    struct end *zero = rig_join(rig, "resnet", 0, 1, NULL, NULL);
    for (uint32_t i = 1; i < START_FAILURES_MAX; i++) {
        rig_kill(rig, rig->processes[0]);
        while (rig->starts == i)
            rig_step_within(rig, NS_PER_MS);
    }
    rig_kill(rig, rig->processes[0]);
    envelope *failure = end_expect(zero, BODY(JOB_FAILURE));
    assert_int_equal(failure->job_failure->code, -ESHUTDOWN);
    assert_string_equal(failure->job_failure->text, "gradpool serve cannot continue; see its log");
    message_free(failure);
}

static void an_aggregator_that_cannot_start_ends_no_job_on_other_aggregators(void **state)
{
    struct rig *rig = *state;
    coordinator_destroy(rig->coordinator);
    rig->options.aggregators = 1;
    rig->locals_give_up = true;
    rig_start(rig);
    rig_aggregator(rig, 1);
    rig_join(rig, "resnet", 0, 1, NULL, NULL);
    for (uint32_t i = 1; i < START_FAILURES_MAX + 1; i++) {
        rig_kill(rig, rig->processes[0]);
        while (rig->starts == i)
            rig_step_within(rig, NS_PER_MS);
    }
    assert_int_equal(coordinator_step(rig->coordinator, 0), 1);
}

static void a_foreign_grant_is_refused(void **state)
{
    WIRE(AggregatorJoin) join = GRADPOOL__WIRE__AGGREGATOR_JOIN__INIT;
    WIRE(LaneOffer) offer = GRADPOOL__WIRE__LANE_OFFER__INIT, *offers[] = {&offer};
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    struct end *e = rig_connect_node(*state);
    join.incarnation = 5;
    join.lanes = offers;
    join.n_lanes = 1;
    join.grant = "0123";
    request.body_case = BODY(AGGREGATOR_JOIN);
    request.aggregator_join = &join;
    end_ask_refused(e, &request, -EPERM, "the aggregator's grant is not of this service");
    join.grant = "";
    join.aggregator = 9;
    end_ask_refused(e, &request, -ESTALE,
                    "aggregator 9 counts as lost: its connection had ended for too long");
    join.aggregator = 0;
    join.n_lanes = 0;
    end_ask_refused(e, &request, -EINVAL,
                    "aggregator refused: the aggregator offers no lanes, or too many");
    join.n_lanes = 1;
    join.node = "a\nb";
    end_ask_refused(e, &request, -EINVAL,
                    "host name has other characters than a host name may have");
    join.node = "";
    end_ask_refused(rig_aggregator(*state, 1), &request, -EINVAL,
                    "this connection has joined already");
    kept_log_expect(" as operator");
}

static void a_returning_aggregator_keeps_its_pieces(void **state)
{
    struct rig *rig = *state;
    uint32_t job;
    struct end *first = rig_aggregator(rig, 1);
    struct end *zero = rig_join(rig, "resnet", 0, 1, NULL, &job);
    WIRE(Piece) piece = declare(zero, "w");
    WIRE(PieceHeld) holds = held(job, &piece);
    end_close(first);
    rig_settle(rig);
    struct end *again = rig_rejoin(rig, first, 1, &holds);
    assert_int_equal(again->aggregator, first->aggregator);
    assert_int_equal(again->lanes[0], first->lanes[0]);
    end_expect_none(again, BODY(PLACE_REQUEST));
    end_expect_none(zero, BODY(ROUTE_CHANGE));
}

static void pieces_that_a_returning_aggregator_lacks_are_placed_again(void **state)
{
    struct rig *rig = *state;
    struct end *first = rig_aggregator(rig, 1);
    struct end *zero = rig_join(rig, "resnet", 0, 1, NULL, NULL);
    first->answers = false;
    end_declare_one(zero, "w", 100);
    message_free(end_expect(first, BODY(PLACE_REQUEST)));
    end_close(first); /* the request was lost with the connection */
    rig_settle(rig);
    struct end *again = rig_rejoin(rig, first, 0, NULL);
    drop_placed(again);
    message_free(end_expect(zero, BODY(DECLARE_REPLY)));
}

static void superfluous_pieces_of_a_returning_aggregator_are_dropped(void **state)
{
    struct rig *rig = *state;
    uint32_t job;
    struct end *first = rig_aggregator(rig, 1);
    struct end *zero = rig_join(rig, "resnet", 0, 1, NULL, &job);
    WIRE(Piece) piece = declare(zero, "w");
    WIRE(PieceHeld) holds = held(job, &piece);
    end_close(first);
    rig_settle(rig);
    end_leave(zero);
    struct end *again = rig_rejoin(rig, first, 1, &holds);
    envelope *drop = end_expect(again, BODY(DROP_REQUEST));
    assert_int_equal(drop->drop_request->job_id, job);
    assert_int_equal(drop->drop_request->pieces[0], piece.id);
    message_free(drop);
}

static void an_answer_of_the_former_owner_does_not_make_a_piece_ready(void **state)
{
    struct rig *rig = *state;
    struct end *first = rig_local_aggregator(rig, 1, "");
    struct end *zero = rig_join(rig, "resnet", 0, 1, NULL, NULL);
    first->answers = false;
    end_declare_one(zero, "w", 100);
    envelope *place = end_expect(first, BODY(PLACE_REQUEST));
    struct end *second = rig_aggregator(rig, 1);
    second->answers = false;
    rig_kill(rig, first->process);
    envelope *again = end_expect(second, BODY(PLACE_REQUEST));
    end_answer(first, place);
    end_expect_none(zero, BODY(DECLARE_REPLY));
    end_answer(second, again);
    envelope *reply = end_expect(zero, BODY(DECLARE_REPLY));
    assert_int_equal(reply->declare_reply->tensors[0]->pieces[0]->lane, second->lanes[0]);
    assert_int_equal(reply->declare_reply->tensors[0]->pieces[0]->epoch, 2);
    message_free(place);
    message_free(again);
    message_free(reply);
}

static void a_rank_that_was_away_gets_the_new_routes_when_it_resumes(void **state)
{
    struct rig *rig = *state;
    envelope request;
    WIRE(JoinRequest) join;
    uint64_t session;
    uint32_t job;
    struct end *first = rig_local_aggregator(rig, 1, "");
    struct end *zero = rig_join(rig, "resnet", 0, 1, &session, &job);
    declare(zero, "w");
    end_close(zero);
    struct end *second = rig_aggregator(rig, 1);
    rig_kill(rig, first->process);
    drop_placed(second);
    struct end *e = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    join_request(&request, &join, "resnet", 0, 1);
    join.session = session;
    join.job_id = job;
    message_free(end_ask(e, &request));
    envelope *change = end_expect(e, BODY(ROUTE_CHANGE));
    assert_int_equal(change->route_change->tensors[0]->pieces[0]->epoch, 2);
    message_free(change);
}

static void say_failure(struct end *e, uint32_t lane, uint32_t job, const char *text)
{
    WIRE(LaneFailure) failure = GRADPOOL__WIRE__LANE_FAILURE__INIT;
    envelope message = GRADPOOL__WIRE__ENVELOPE__INIT;
    failure.lane = lane;
    failure.job_id = job;
    failure.code = -ECONNRESET;
    failure.text = (char *)text;
    message.body_case = BODY(LANE_FAILURE);
    message.lane_failure = &failure;
    /* a message that answers no request has no id */
    assert_int_equal(channel_send(e->channel, &message), 0);
}

static void expect_failed(struct end *e, const char *text)
{
    envelope *message = end_expect(e, BODY(JOB_FAILURE));
    assert_int_equal(message->job_failure->code, -ECONNRESET);
    assert_non_null(strstr(message->job_failure->text, text));
    message_free(message);
}

static void a_job_that_failed_on_a_lane_has_failed_for_every_rank(void **state)
{
    struct rig *rig = *state;
    uint32_t job;
    struct end *first = rig_aggregator(rig, 1);
    struct end *zero = rig_join(rig, "resnet", 0, 2, NULL, NULL);
    struct end *one = rig_join(rig, "resnet", 1, 2, NULL, &job);
    WIRE(Piece) piece = declare(zero, "w");
    say_failure(first, piece.lane, job, "rank 1 of job 'resnet' (10.0.0.2:5) has lost it");
    expect_failed(zero, "rank 1 of job 'resnet' (10.0.0.2:5)");
    /* without this message, a rank without a connection to the lane would not learn of the
     * failure */
    expect_failed(one, "reported by lane");
    say_failure(first, piece.lane, job, "said again, as after a rejoin");
    end_expect_none(zero, BODY(JOB_FAILURE));
    end_expect_none(first, BODY(FAILURE));
}

static void a_failure_on_a_lane_that_does_not_carry_the_job_ends_nothing(void **state)
{
    struct rig *rig = *state;
    uint32_t job;
    struct end *first = rig_aggregator(rig, 1);
    struct end *zero = rig_join(rig, "resnet", 0, 1, NULL, &job);
    WIRE(Piece) piece = declare(zero, "w");
    struct end *second = rig_aggregator(rig, 1);
    say_failure(second, second->lanes[0], job, "late");
    say_failure(second, piece.lane, job, "of somebody else's lane");
    say_failure(second, 4000, job, "of no lane");
    say_failure(first, piece.lane, job + 1, "of no job");
    say_failure(zero, piece.lane, job, "from a client");
    rig_settle(rig);
    end_expect_none(zero, BODY(JOB_FAILURE));
}

static void status_shows_aggregators_lanes_and_figures(void **state)
{
    struct rig *rig = *state;
    WIRE(StatusRequest) status = GRADPOOL__WIRE__STATUS_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    struct end *lane = rig_aggregator(rig, 2);
    struct end *silent = rig_aggregator(rig, 1);
    silent->answers = false; /* the request for the lane's figures has a short deadline */
    struct end *zero = rig_join(rig, "resnet", 0, 1, NULL, NULL);
    silent->answers = true;
    declare(zero, "w");
    silent->answers = false;
    struct end *e = rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    request.body_case = BODY(STATUS_REQUEST);
    request.status_request = &status;
    envelope *reply = end_ask(e, &request);
    const WIRE(StatusReply) *s = reply->status_reply;
    assert_string_equal(s->endpoint, coordinator_endpoint(rig->coordinator));
    assert_int_equal(s->jobs, 1);
    assert_int_equal(s->tasks, 1);
    assert_int_equal(s->n_aggregators, 2);
    assert_string_equal(s->aggregators[0]->state, "up");
    assert_int_equal(s->aggregators[0]->n_lanes, 2);
    assert_int_equal(s->aggregators[0]->lanes[1]->lane, lane->lanes[1]);
    assert_int_equal(s->aggregators[0]->cpu_ns, 42);
    assert_int_equal(s->aggregators[1]->cpu_ns, 0);
    message_free(reply);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(pieces_of_a_dead_aggregator_get_a_new_lane_and_epoch),
        CASE(a_lane_that_cannot_take_pieces_yet_gets_the_request_again),
        CASE(a_declare_that_waits_for_a_lost_aggregator_goes_to_the_next),
        CASE(a_process_that_closes_its_connection_but_lives_is_not_replaced),
        CASE(without_another_lane_the_job_waits_and_names_the_aggregator),
        CASE(an_aggregator_that_is_away_too_long_is_lost),
        CASE(a_remote_aggregator_that_sends_a_goodbye_is_not_awaited),
        CASE(a_local_aggregator_that_sends_a_goodbye_is_lost_when_its_process_ends),
        CASE(a_job_without_pieces_on_the_lost_lane_gets_no_message),
        CASE(a_local_aggregator_is_started_again_and_gets_its_pieces_back),
        CASE(a_local_aggregator_that_keeps_dying_is_left_alone_for_a_while),
        CASE(the_service_ends_with_the_reason_when_no_local_aggregator_can_start),
        CASE(a_job_gets_the_reason_when_no_local_aggregator_can_start),
        CASE(an_aggregator_that_cannot_start_ends_no_job_on_other_aggregators),
        CASE(a_foreign_grant_is_refused),
        CASE(a_returning_aggregator_keeps_its_pieces),
        CASE(pieces_that_a_returning_aggregator_lacks_are_placed_again),
        CASE(superfluous_pieces_of_a_returning_aggregator_are_dropped),
        CASE(an_answer_of_the_former_owner_does_not_make_a_piece_ready),
        CASE(a_rank_that_was_away_gets_the_new_routes_when_it_resumes),
        CASE(a_job_that_failed_on_a_lane_has_failed_for_every_rank),
        CASE(a_failure_on_a_lane_that_does_not_carry_the_job_ends_nothing),
        CASE(status_shows_aggregators_lanes_and_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
