/* Tests moves of tasks with copies on other aggregators (K57). Before the switch the new holder of
 * copies must have the copy. No aggregator may keep a copy that is not needed. */
#include "test/unit/coordinator/keeping_case.h"

#include "svc/base/clock.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/replica/replica.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* maximum number of failed connections in a row before a holder is replaced */
#define FAILURES_MOST 8

static struct aggregator *record_of(const struct end *e)
{
    return aggregator_find(e->rig->coordinator->service, e->aggregator);
}

/* A job with a task on the owner's lane. The holder of its copy may receive tasks, too. */
struct moving {
    struct kept k;
    struct end *asker;
    uint64_t order;
};

static struct moving begin(struct rig *rig)
{
    struct moving m = {.k = keeping_begun(rig)};
    m.asker = rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    keeping_open(m.k.holder);
    return m;
}

/* Orders a move to the holder of the copy. Afterwards the former owner becomes the holder. */
static struct moving order(struct rig *rig)
{
    struct moving m = begin(rig);
    m.k.holder->ignores = BODY(COPIES_WAIT);
    m.order = keeping_order_move(m.asker, m.k.holder);
    assert_int_equal(keeping_placed_with(&m.k, m.k.holder), m.k.owner->aggregator);
    keeping_holder_hears(&m.k, m.k.owner, m.k.holder, 2, 1, true);
    return m;
}

static envelope *take_wait(const struct moving *m, const struct end *target)
{
    envelope *message = end_expect((struct end *)target, BODY(COPIES_WAIT));
    assert_int_equal(message->copies_wait->lane, target->lanes[0]);
    assert_int_equal(message->copies_wait->job_id, m->k.job);
    assert_int_equal(message->copies_wait->n_pieces, 1);
    assert_int_equal(message->copies_wait->pieces[0], m->k.piece.id);
    return message;
}

static void answer_wait(const struct moving *m, struct end *target)
{
    envelope *message = take_wait(m, target);
    end_answer(target, message);
    message_free(message);
}

static void expect_stays(const struct moving *m, const char *why)
{
    envelope *reply = end_expect_reply(m->asker, m->order);
    assert_int_equal(reply->body_case, BODY(MOVE_REPLY));
    if (!strstr(reply->move_reply->stays, why))
        fail_msg("'%s' does not say '%s'", reply->move_reply->stays, why);
    message_free(reply);
}

static void expect_ended(const struct moving *m, struct end *holder)
{
    envelope *message = end_expect(holder, BODY(COPIES_END));
    assert_int_equal(message->copies_end->job_id, m->k.job);
    assert_int_equal(message->copies_end->n_pieces, 1);
    assert_int_equal(message->copies_end->pieces[0], m->k.piece.id);
    message_free(message);
}

/* Checks that the target no longer has a copy, and that the current holder is unchanged. */
static void expect_as_before(const struct moving *m)
{
    expect_ended(m, m->k.owner);
    end_expect_none(m->k.holder, BODY(COPIES_END));
    keeping_expect_silence(m->k.owner, m->k.holder);
    keeping_expect_silence(m->k.holder, m->k.owner);
}

static void expect_ticket(struct end *holder, int code)
{
    envelope *message = end_expect(holder, BODY(COPY_TICKET));
    assert_int_equal(message->copy_ticket->code, code);
    message_free(message);
}

/* --- the move succeeds --- */

static void the_next_holder_has_the_copies_before_the_switch(void **state)
{
    struct moving m = order(*state);
    envelope *wait = take_wait(&m, m.k.holder);
    /* no answer has confirmed that the copy is complete */
    end_expect_none(m.k.owner, BODY(RELEASE_REQUEST));
    end_answer(m.k.holder, wait);
    message_free(wait);
    message_free(end_expect(m.k.owner, BODY(RELEASE_REQUEST)));
    message_free(end_expect(m.k.holder, BODY(INSTALL_REQUEST)));
    wait = take_wait(&m, m.k.holder);
    end_expect_none(m.k.worker, BODY(ROUTE_CHANGE));
    /* the coordinator does not know of another complete copy */
    end_expect_none(m.k.holder, BODY(COPIES_END));
    end_answer(m.k.holder, wait);
    message_free(wait);
    keeping_expect_moved(m.asker, m.order);
    message_free(end_expect(m.k.worker, BODY(ROUTE_CHANGE)));
    expect_ended(&m, m.k.holder);
    keeping_lane_hears(&m.k, m.k.holder, m.k.owner->aggregator, false);
    keeping_expect_silence(m.k.holder, m.k.owner);
    end_expect_none(m.k.owner, BODY(COPIES_END));
    kept_log_expect("an operator ordered it");
}

static void the_next_holder_gets_tickets_while_the_task_moves(void **state)
{
    struct moving m = order(*state);
    keeping_ask_ticket(m.k.owner, m.k.job, m.k.holder->lanes[0], 0);
    expect_ticket(m.k.owner, 0);
    keeping_ask_ticket(m.k.owner, m.k.job, m.k.owner->lanes[0], 0);
    expect_ticket(m.k.owner, -ESTALE);
    m.k.holder->ignores = 0;
    answer_wait(&m, m.k.holder);
    keeping_expect_moved(m.asker, m.order);
    keeping_ask_ticket(m.k.owner, m.k.job, m.k.holder->lanes[0], 0);
    expect_ticket(m.k.owner, 0);
    keeping_ask_ticket(m.k.holder, m.k.job, m.k.owner->lanes[0], 0);
    expect_ticket(m.k.holder, -ENOENT);
}

static void a_task_that_moves_elsewhere_keeps_its_holder_and_waits_for_no_copy(void **state)
{
    struct moving m = begin(*state);
    struct end *third = rig_aggregator(m.k.rig, 1);
    third->ignores = BODY(INSTALL_REQUEST);
    m.order = keeping_order_move(m.asker, third);
    assert_int_equal(keeping_placed_with(&m.k, third), m.k.holder->aggregator);
    envelope *install = end_expect(third, BODY(INSTALL_REQUEST));
    keeping_expect_silence(third, m.k.holder);
    end_answer(third, install);
    message_free(install);
    keeping_holder_hears(&m.k, m.k.holder, third, 2, 1, false);
    keeping_lane_hears(&m.k, third, m.k.holder->aggregator, false);
    keeping_expect_moved(m.asker, m.order);
    keeping_expect_silence(third, m.k.holder);
    end_expect_none(third, BODY(COPIES_WAIT));
    end_expect_none(m.k.holder, BODY(COPIES_END));
}

static void two_tasks_with_two_holders_are_copied_apart(void **state)
{
    struct moving m = begin(*state);
    struct end *third = keeping_aggregator(m.k.rig);
    record_of(m.k.holder)->unfit_until_ns = clock_now_ns() + 60 * NS_PER_S;
    keeping_withhold(m.k.holder);
    WIRE(Piece) other = keeping_declare(m.k.worker, "v");
    envelope *place = end_expect(m.k.owner, BODY(PLACE_REQUEST));
    assert_int_equal(place->place_request->pieces[0]->holder, third->aggregator);
    message_free(place);
    envelope *told = end_expect(third, BODY(COPIES_REQUEST));
    assert_int_equal(told->copies_request->copies[0]->piece, other.id);
    message_free(told);
    keeping_open(m.k.holder);
    record_of(third)->is_stopping = true; /* a stopping aggregator must hand over its copies, too */
    m.order = keeping_order_move(m.asker, m.k.holder);
    told = end_expect(m.k.owner, BODY(COPIES_REQUEST));
    assert_int_equal(told->copies_request->n_copies, 2);
    message_free(told);
    envelope *reply = end_expect_reply(m.asker, m.order);
    assert_string_equal(reply->move_reply->stays, "");
    message_free(reply);
}

/* --- the move is given up --- */

static void a_move_that_is_given_up_changes_no_holder(void **state)
{
    struct moving m = begin(*state);
    m.k.holder->refuses = BODY(INSTALL_REQUEST);
    m.order = keeping_order_move(m.asker, m.k.holder);
    expect_stays(&m, "it does not want to");
    keeping_holder_hears(&m.k, m.k.owner, m.k.holder, 2, 1, true);
    expect_as_before(&m);
    /* the lane still uses this holder, and receives a message about the holder's end */
    end_say_goodbye(m.k.holder);
    keeping_lane_hears(&m.k, m.k.owner, 0, false);
    kept_log_expect("1 task stays on its lane: ");
}

static void a_target_that_does_not_see_the_copy_gives_up_the_move(void **state)
{
    struct moving m = begin(*state);
    m.k.holder->refuses = BODY(COPIES_WAIT);
    m.order = keeping_order_move(m.asker, m.k.holder);
    expect_stays(&m, "it does not want to");
    end_expect_none(m.k.owner, BODY(RELEASE_REQUEST));
    keeping_holder_hears(&m.k, m.k.owner, m.k.holder, 2, 1, true);
    expect_as_before(&m);
}

/* The task stays until a third aggregator can store the copy. */
static void expect_moved_with(struct moving *m, struct end *third)
{
    keeping_holder_hears(&m->k, third, m->k.holder, 3, 1, true);
    keeping_expect_moved(m->asker, m->order);
    assert_true(record_of(m->k.owner)->unfit_until_ns > clock_now_ns());
}

static void a_next_holder_without_memory_is_replaced(void **state)
{
    struct moving m = begin(*state);
    struct end *third = keeping_aggregator(m.k.rig);
    m.k.owner->refuses = BODY(COPIES_REQUEST);
    m.order = keeping_order_move(m.asker, m.k.holder);
    expect_moved_with(&m, third);
    kept_log_expect(" stores no replicas of the tasks on lane ");
}

static void a_next_holder_that_cannot_reach_the_target_is_replaced(void **state)
{
    struct moving m = begin(*state);
    struct end *third = keeping_aggregator(m.k.rig);
    m.k.holder->ignores = BODY(COPIES_WAIT);
    m.order = keeping_order_move(m.asker, m.k.holder);
    message_free(take_wait(&m, m.k.holder));
    m.k.holder->ignores = 0;
    keeping_ask_ticket(m.k.owner, m.k.job, m.k.holder->lanes[0], FAILURES_MOST);
    expect_ticket(m.k.owner, -ESTALE);
    expect_moved_with(&m, third);
    kept_log_expect("no replica holder has memory for copies of the moving tasks");
    kept_log_expect("the holder cannot connect to the lane");
}

/* A task stays if after the move no aggregator could store its copy. Only a drain moves such a
 * task. */
static void a_task_with_a_copy_does_not_move_where_no_aggregator_can_hold_one(void **state)
{
    struct moving m = begin(*state);
    record_of(m.k.owner)->unfit_until_ns = clock_now_ns() + 60 * NS_PER_S;
    m.order = keeping_order_move(m.asker, m.k.holder);
    end_expect_none(m.k.holder, BODY(PLACE_REQUEST));
    keeping_withhold(m.k.owner);
    keeping_expect_moved(m.asker, m.order); /* the move was tried again */
    expect_ended(&m, m.k.holder);
    keeping_lane_hears(&m.k, m.k.holder, 0, false);
    kept_log_expect("task 1 would have no replica holder at its new place");
    kept_log_expect("a move waits: ");
}

/* Owner, target and holder of the copy are three processes. */
static struct moving order_among_three(struct rig *rig, struct end **ret_third)
{
    struct moving m = begin(rig);
    *ret_third = rig_aggregator(rig, 1);
    char *node = record_of(*ret_third)->node;
    record_of(*ret_third)->node = strdup("node8"); /* a holder on another host is preferred */
    m.k.holder->ignores = BODY(COPIES_WAIT);
    m.order = keeping_order_move(m.asker, m.k.holder);
    assert_int_equal(keeping_placed_with(&m.k, m.k.holder), (*ret_third)->aggregator);
    free(node);
    keeping_holder_hears(&m.k, *ret_third, m.k.holder, 2, 1, true);
    return m;
}

static void the_loss_of_a_holder_during_a_move_aborts_the_move(void **state)
{
    struct end *third;
    struct moving m = order_among_three(*state, &third);
    message_free(take_wait(&m, m.k.holder));
    end_close(third);
    /* The move is repeated. The next holder is chosen from the remaining aggregators. */
    keeping_holder_hears(&m.k, m.k.owner, m.k.holder, 3, 1, true);
    m.k.holder->ignores = 0;
    answer_wait(&m, m.k.holder);
    keeping_expect_moved(m.asker, m.order);
}

/* Rounds of the source wait for its replica holder, so another holder is chosen at once. */
static void a_task_whose_next_holder_is_lost_stays_and_gets_another_holder(void **state)
{
    struct moving m = begin(*state);
    struct end *third = rig_aggregator(m.k.rig, 1);
    m.k.owner->ignores = BODY(RELEASE_REQUEST);
    m.order = keeping_order_move(m.asker, third);
    message_free(end_expect(m.k.owner, BODY(RELEASE_REQUEST)));
    end_say_goodbye(m.k.holder);
    message_free(end_expect(m.k.owner, BODY(THAW_REQUEST)));
    keeping_holder_hears(&m.k, third, m.k.owner, 1, 1, true);
    keeping_lane_hears(&m.k, m.k.owner, third->aggregator, false);
    kept_log_expect("the replica holder of the moving tasks was lost");
}

/* The holder is lost before the source has released the task. */
static void a_holder_that_is_lost_after_the_switch_is_followed_at_once(void **state)
{
    struct moving m = begin(*state);
    struct end *third = rig_aggregator(m.k.rig, 1), *fourth;
    m.k.owner->ignores = BODY(DROP_REQUEST);
    m.order = keeping_order_move(m.asker, third);
    message_free(end_expect(m.k.owner, BODY(DROP_REQUEST)));
    keeping_holder_hears(&m.k, m.k.holder, third, 2, 1, false);
    keeping_lane_hears(&m.k, third, m.k.holder->aggregator, false);
    record_of(m.k.owner)->unfit_until_ns = clock_now_ns() + 60 * NS_PER_S;
    fourth = keeping_aggregator(m.k.rig);
    end_say_goodbye(m.k.holder);
    keeping_holder_hears(&m.k, fourth, third, 2, 1, true);
    keeping_lane_hears(&m.k, third, fourth->aggregator, false);
}

/* The copy of the former holder may be the only one, and must not be overwritten. */
static void a_move_waits_while_its_next_holder_is_a_former_one(void **state)
{
    struct moving m = begin(*state);
    struct end *third = keeping_aggregator(m.k.rig);
    record_of(m.k.holder)->is_stopping = true;
    keeping_check_all(m.k.rig->coordinator->service);
    keeping_holder_hears(&m.k, third, m.k.owner, 1, 1, true);
    keeping_lane_hears(&m.k, m.k.owner, third->aggregator, true);
    record_of(m.k.holder)->is_stopping = false;
    record_of(m.k.owner)->is_stopping = true;
    keeping_open(third);
    m.order = keeping_order_move(m.asker, third);
    end_expect_none(third, BODY(PLACE_REQUEST));
    kept_log_expect("the replica of task 1 is being read");
}

/* --- tensors and jobs that end meanwhile --- */

static void the_copy_of_a_piece_undeclared_during_a_move_is_dropped(void **state)
{
    struct moving m = order(*state);
    WIRE(UndeclareRequest) undeclare = GRADPOOL__WIRE__UNDECLARE_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    uint32_t tensor = jobs_find_id(m.k.rig->coordinator->service, m.k.job)->tensors[0]->id;
    undeclare.tensors = &tensor;
    undeclare.n_tensors = 1;
    request.body_case = BODY(UNDECLARE_REQUEST);
    request.undeclare_request = &undeclare;
    message_free(end_ask(m.k.worker, &request));
    expect_ended(&m, m.k.holder);
    m.k.holder->ignores = 0;
    answer_wait(&m, m.k.holder);
    expect_ended(&m, m.k.owner);
}

static void a_job_that_ends_during_its_move_leaves_no_copy(void **state)
{
    struct moving m = order(*state);
    end_leave(m.k.worker);
    expect_ended(&m, m.k.owner); /* a worker that leaves ends the move at once */
    struct end *holders[] = {m.k.owner, m.k.holder};
    for (size_t i = 0; i < 2; i++) {
        envelope *message = end_expect(holders[i], BODY(COPIES_END));
        assert_int_equal(message->copies_end->job_id, m.k.job);
        assert_int_equal(message->copies_end->n_pieces, 0);
        message_free(message);
    }
    kept_log_expect("a worker left the job during the move");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(the_next_holder_has_the_copies_before_the_switch),
        CASE(the_next_holder_gets_tickets_while_the_task_moves),
        CASE(a_task_that_moves_elsewhere_keeps_its_holder_and_waits_for_no_copy),
        CASE(two_tasks_with_two_holders_are_copied_apart),
        CASE(a_move_that_is_given_up_changes_no_holder),
        CASE(a_target_that_does_not_see_the_copy_gives_up_the_move),
        CASE(a_next_holder_without_memory_is_replaced),
        CASE(a_next_holder_that_cannot_reach_the_target_is_replaced),
        CASE(a_task_with_a_copy_does_not_move_where_no_aggregator_can_hold_one),
        CASE(a_holder_that_is_lost_after_the_switch_is_followed_at_once),
        CASE(the_loss_of_a_holder_during_a_move_aborts_the_move),
        CASE(a_task_whose_next_holder_is_lost_stays_and_gets_another_holder),
        CASE(a_move_waits_while_its_next_holder_is_a_former_one),
        CASE(the_copy_of_a_piece_undeclared_during_a_move_is_dropped),
        CASE(a_job_that_ends_during_its_move_leaves_no_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
