/* Tests requests to the holder of a copy (replica holder, K57), refusals of the holder, and the
 * state of the holder after a restart of the coordinator. */
#include "test/unit/coordinator/keeping_case.h"

#include "svc/base/clock.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/wire/record.h"

#include <errno.h>
#include <string.h>

#define FAILURES_MOST 8 /* number of failures in a row before a holder is replaced */

static struct aggregator *record_of(const struct end *e)
{
    return aggregator_find(e->rig->coordinator->service, e->aggregator);
}

static WIRE(PieceHeld) held(const struct kept *k)
{
    WIRE(PieceHeld) h = GRADPOOL__WIRE__PIECE_HELD__INIT;
    h.job_id = k->job;
    h.piece = k->piece.id;
    h.lane = k->piece.lane;
    h.epoch = k->piece.epoch;
    return h;
}

/* --- tickets --- */

/* Waits for the answer with the ticket. The caller frees it. */
static envelope *take_ticket(struct end *holder, uint32_t job, uint32_t lane, int code)
{
    envelope *message = end_expect(holder, BODY(COPY_TICKET));
    assert_int_equal(message->id, 0);
    assert_int_equal(message->copy_ticket->job_id, job);
    assert_int_equal(message->copy_ticket->lane, lane);
    assert_int_equal(message->copy_ticket->code, code);
    assert_true(code == 0 || message->copy_ticket->ticket.len == 0);
    return message;
}

static void expect_answer(struct end *holder, uint32_t job, uint32_t lane, int code)
{
    keeping_ask_ticket(holder, job, lane, 0);
    message_free(take_ticket(holder, job, lane, code));
}

static void expect_granted(const struct kept *k, const WIRE(GrantRequest) * grant,
                           const WIRE(CopyTicket) * ticket)
{
    struct record_connect connect;
    uint32_t rank = RECORD_HOLDER | k->holder->aggregator;
    assert_int_equal(grant->lane, k->piece.lane);
    assert_int_equal(grant->job_id, k->job);
    assert_int_equal(grant->rank, rank);
    assert_int_equal(ticket->ticket.len, sizeof connect);
    assert_int_equal(grant->ticket.len, sizeof connect);
    assert_memory_equal(ticket->ticket.data, grant->ticket.data, sizeof connect);
    memcpy(&connect, ticket->ticket.data, sizeof connect);
    assert_int_equal(connect.magic, RECORD_MAGIC);
    assert_int_equal(connect.job, k->job);
    assert_int_equal(connect.rank, rank);
    assert_int_equal(connect.lane, k->piece.lane);
    assert_int_equal(connect.incarnation, k->owner->incarnation);
    assert_string_equal(ticket->shm, "@lane");
    assert_string_equal(ticket->ofi, "10.0.0.1:5000");
}

static void a_holder_gets_a_ticket_that_the_lane_has_stored(void **state)
{
    struct kept k = keeping_begun(*state);
    k.owner->ignores = BODY(GRANT_REQUEST);
    keeping_ask_ticket(k.holder, k.job, k.piece.lane, 0);
    envelope *grant = end_expect(k.owner, BODY(GRANT_REQUEST));
    end_expect_none(k.holder, BODY(COPY_TICKET));
    end_answer(k.owner, grant);
    envelope *ticket = take_ticket(k.holder, k.job, k.piece.lane, 0);
    expect_granted(&k, grant->grant_request, ticket->copy_ticket);
    message_free(grant);
    message_free(ticket);
}

static void each_ticket_is_unique(void **state)
{
    struct kept k = keeping_begun(*state);
    struct record_connect tickets[2];
    for (int i = 0; i < 2; i++) {
        keeping_ask_ticket(k.holder, k.job, k.piece.lane, 0);
        envelope *message = take_ticket(k.holder, k.job, k.piece.lane, 0);
        memcpy(&tickets[i], message->copy_ticket->ticket.data, sizeof tickets[i]);
        message_free(message);
    }
    assert_memory_not_equal(tickets[0].token, tickets[1].token, RECORD_TOKEN_BYTES);
}

static void a_ticket_for_a_job_without_copies_is_refused(void **state)
{
    struct kept k = keeping_begun(*state);
    expect_answer(k.holder, k.job + 7, k.piece.lane, -ENOENT);
    expect_answer(k.owner, k.job, k.piece.lane, -ENOENT); /* the owner has no copies */
    end_leave(k.worker);
    expect_answer(k.holder, k.job, k.piece.lane, -ENOENT);
    end_expect_none(k.owner, BODY(GRANT_REQUEST));
}

static void a_ticket_for_a_lane_without_copies_is_refused(void **state)
{
    struct kept k = keeping_begun(*state);
    expect_answer(k.holder, k.job, 999, -ESTALE);
    expect_answer(k.holder, k.job, k.holder->lanes[0], -ESTALE);
    struct end *third = rig_aggregator(k.rig, 1);
    uint32_t former = k.piece.lane;
    end_say_goodbye(k.owner);
    expect_answer(k.holder, k.job, former, -ESTALE);
    keeping_holder_hears(&k, k.holder, third, 2, 2, false);
    expect_answer(k.holder, k.job, third->lanes[0], 0);
}

static void a_request_for_an_absent_lane_is_repeated(void **state)
{
    struct kept k = keeping_begun(*state);
    struct end before = *k.owner;
    WIRE(PieceHeld) h = held(&k);
    end_close(k.owner);
    rig_settle(k.rig);
    expect_answer(k.holder, k.job, k.piece.lane, -EAGAIN);
    k.owner = rig_rejoin(k.rig, &before, 1, &h);
    expect_answer(k.holder, k.job, k.piece.lane, 0);
}

static void a_request_to_a_lane_that_grants_nothing_is_repeated(void **state)
{
    struct kept k = keeping_begun(*state);
    k.owner->refuses = BODY(GRANT_REQUEST);
    expect_answer(k.holder, k.job, k.piece.lane, -EAGAIN);
    k.owner->refuses = 0;
    k.owner->ignores = BODY(GRANT_REQUEST);
    keeping_ask_ticket(k.holder, k.job, k.piece.lane, 0);
    rig_settle(k.rig);
    end_close(k.owner); /* the owner's connection ends before its answer */
    message_free(take_ticket(k.holder, k.job, k.piece.lane, -EAGAIN));
}

static void only_an_aggregator_that_has_joined_gets_tickets(void **state)
{
    struct kept k = keeping_begun(*state);
    struct end *other = rig_connect_node(k.rig);
    keeping_ask_ticket(other, k.job, k.piece.lane, 0);
    end_expect_none(k.owner, BODY(GRANT_REQUEST));
    end_expect_none(other, BODY(COPY_TICKET));
}

/* --- replica holders that cannot copy --- */

static void a_holder_that_cannot_reach_a_lane_is_replaced(void **state)
{
    struct kept k = keeping_begun(*state);
    struct end *third = keeping_aggregator(k.rig);
    keeping_ask_ticket(k.holder, k.job, k.piece.lane, FAILURES_MOST - 1);
    message_free(take_ticket(k.holder, k.job, k.piece.lane, 0));
    keeping_expect_silence(k.owner, third);
    keeping_ask_ticket(k.holder, k.job, k.piece.lane, FAILURES_MOST);
    message_free(take_ticket(k.holder, k.job, k.piece.lane, -ESTALE));
    keeping_holder_hears(&k, third, k.owner, 1, 1, true);
    /* The lane waits for the copy of the lost holder. Without the coordinator's message the lane
     * would wait forever. */
    keeping_lane_hears(&k, k.owner, third->aggregator, false);
    expect_answer(k.holder, k.job, k.piece.lane, -ENOENT);
}

static void without_a_third_aggregator_a_lane_continues_without_an_unreachable_holder(void **state)
{
    struct kept k = keeping_begun(*state);
    keeping_ask_ticket(k.holder, k.job, k.piece.lane, FAILURES_MOST);
    message_free(take_ticket(k.holder, k.job, k.piece.lane, -ESTALE));
    keeping_lane_hears(&k, k.owner, 0, false);
    keeping_expect_silence(k.owner, k.holder);
}

/* Starts a job with an owner of two lanes. The next tensor is placed on the second lane. */
static struct kept begin_on_two_lanes(struct rig *rig)
{
    struct kept k = {.rig = rig, .owner = rig_aggregator(rig, 2)};
    k.holder = keeping_aggregator(rig);
    struct service *s = rig->coordinator->service;
    lane_find(s, k.owner->lanes[1])->use = LANE_WITHHELD;
    k.worker = keeping_join(rig, "resnet", DURABILITY_REPLICA, &k.session, &k.job);
    k.piece = keeping_declare(k.worker, "w");
    assert_int_equal(keeping_placed_with(&k, k.owner), k.holder->aggregator);
    keeping_holder_hears(&k, k.holder, k.owner, 1, 1, true);
    keeping_lane_hears(&k, k.owner, k.holder->aggregator, false);
    lane_find(s, k.owner->lanes[0])->use = LANE_WITHHELD;
    lane_find(s, k.owner->lanes[1])->use = LANE_OPEN;
    return k;
}

static uint32_t take_holder(struct end *owner, uint32_t lane, uint32_t piece)
{
    envelope *message = end_expect(owner, BODY(HOLDER_REQUEST));
    const WIRE(HolderRequest) *told = message->holder_request;
    assert_int_equal(told->lane, lane);
    assert_int_equal(told->n_pieces, 1);
    assert_int_equal(told->pieces[0], piece);
    assert_false(told->when_known);
    uint32_t holder = told->holder;
    message_free(message);
    return holder;
}

static void a_holder_that_refuses_copies_of_a_lane_loses_that_lane(void **state)
{
    struct kept k = begin_on_two_lanes(*state);
    k.holder->refuses = BODY(COPIES_REQUEST);
    WIRE(Piece) other = keeping_declare(k.worker, "v");
    assert_int_equal(other.lane, k.owner->lanes[1]);
    assert_int_equal(take_holder(k.owner, other.lane, other.id), k.holder->aggregator);
    assert_int_equal(take_holder(k.owner, other.lane, other.id), 0);
    struct end *third = keeping_aggregator(k.rig); /* the first aggregator has no memory left */
    assert_int_equal(take_holder(k.owner, other.lane, other.id), third->aggregator);
    end_expect_none(k.owner, BODY(HOLDER_REQUEST)); /* the other pieces keep their holder */
    envelope *message = end_expect(third, BODY(COPIES_REQUEST));
    assert_int_equal(message->copies_request->lane, other.lane);
    assert_int_equal(message->copies_request->copies[0]->piece, other.id);
    message_free(message);
}

/* Sends the request twice, because the coordinator's first request for the copy may have been
 * lost. */
static void a_holder_without_memory_for_a_copy_is_replaced(void **state)
{
    struct kept k = keeping_begun(*state);
    struct end *next = rig_aggregator(k.rig, 1), *third = keeping_aggregator(k.rig);
    k.holder->refuses = BODY(COPIES_REQUEST);
    k.holder->refusal = -ENOSPC;
    end_say_goodbye(k.owner);
    keeping_holder_hears(&k, k.holder, next, 2, 2, false);
    keeping_holder_hears(&k, third, next, 2, 2, true);
}

static void a_holder_that_has_refused_is_not_chosen_for_some_time(void **state)
{
    struct kept k = keeping_begin(*state, DURABILITY_REPLICA);
    keeping_holder_hears(&k, k.holder, k.owner, 1, 1, true);
    k.holder->refuses = BODY(COPIES_REQUEST);
    keeping_declare(k.worker, "v");
    rig_settle(k.rig);
    k.holder->refuses = 0;
    message_free(end_expect(k.holder, BODY(COPIES_REQUEST)));
    while (k.owner->inbox_count > 0) {
        message_free(k.owner->inbox[0]);
        memmove(k.owner->inbox, k.owner->inbox + 1, --k.owner->inbox_count * sizeof(envelope *));
    }
    keeping_declare(k.worker, "u");
    envelope *place = end_expect(k.owner, BODY(PLACE_REQUEST));
    assert_int_equal(place->place_request->pieces[0]->holder, 0);
    message_free(place);
    record_of(k.holder)->unfit_until_ns = clock_now_ns();
    keeping_declare(k.worker, "t");
    place = end_expect(k.owner, BODY(PLACE_REQUEST));
    assert_int_equal(place->place_request->pieces[0]->holder, k.holder->aggregator);
    message_free(place);
}

/* No other event would start the choice of a holder. */
static void a_holder_that_has_refused_is_chosen_again_later(void **state)
{
    struct kept k = keeping_begun(*state);
    struct service *s = k.rig->coordinator->service;
    keeping_ask_ticket(k.holder, k.job, k.piece.lane, FAILURES_MOST);
    keeping_lane_hears(&k, k.owner, 0, false);
    assert_int_equal(s->retries->unfit.deadline_ns, record_of(k.holder)->unfit_until_ns);
    record_of(k.holder)->unfit_until_ns = clock_now_ns();
    keeping_expect_silence(k.owner, k.holder);
    timer_start(s->loop, &s->retries->unfit, clock_now_ns());
    keeping_holder_hears(&k, k.holder, k.owner, 1, 1, true);
    keeping_lane_hears(&k, k.owner, k.holder->aggregator, false);
}

/* The lane was out of memory for a moment. */
static void a_lane_that_refuses_a_holder_gets_the_ticket_again(void **state)
{
    struct kept k = keeping_begun(*state);
    k.owner->refuses = BODY(HOLDER_REQUEST);
    end_say_goodbye(k.holder);
    keeping_lane_hears(&k, k.owner, 0, false);
    k.owner->refuses = 0;
    keeping_lane_hears(&k, k.owner, 0, false);
    end_expect_none(k.owner, BODY(HOLDER_REQUEST));
    kept_log_expect(": an order about replicas of the tasks on lane ");
}

/* --- a restart --- */

static void restart(struct kept *k, struct end **ends, size_t count)
{
    struct end before[4];
    WIRE(PieceHeld) h = held(k);
    for (size_t i = 0; i < count; i++)
        before[i] = *ends[i];
    rig_crash(k->rig);
    rig_start(k->rig);
    for (size_t i = 0; i < count; i++) {
        ends[i] = rig_rejoin(k->rig, &before[i], i == 0, i == 0 ? &h : NULL);
        keeping_withhold(ends[i]);
    }
}

static void resume(struct kept *k)
{
    k->worker = keeping_join(k->rig, "resnet", DURABILITY_REPLICA, &k->session, &k->job);
}

/* Expects a message that ends all copies. With `is_kept`, this message excludes the copy of the
 * job's only piece. */
static void expect_nothing_else(struct end *e, bool is_kept)
{
    envelope *message = end_expect(e, BODY(COPIES_END));
    assert_true(message->copies_end->others);
    assert_int_equal(message->copies_end->n_pieces, is_kept);
    message_free(message);
}

/* Checks that both aggregators receive the message at least once, and that kept copies stay. */
static void expect_told(const struct kept *k, struct end *owner, struct end *holder)
{
    expect_nothing_else(owner, false);
    expect_nothing_else(holder, true);
    keeping_holder_hears(k, holder, owner, k->piece.epoch, 1, false);
    keeping_lane_hears(k, owner, holder->aggregator, false);
    rig_settle(k->rig);
    while (holder->inbox_count > 0)
        keeping_holder_hears(k, holder, owner, k->piece.epoch, 1, false);
    while (owner->inbox_count > 0)
        keeping_lane_hears(k, owner, holder->aggregator, false);
}

static void a_restart_keeps_holders_and_sends_their_names_to_all_again(void **state)
{
    struct kept k = keeping_begun(*state);
    struct end *ends[] = {k.owner, k.holder};
    restart(&k, ends, 2);
    expect_told(&k, ends[0], ends[1]);
    resume(&k);
    keeping_expect_silence(ends[0], ends[1]);
    expect_answer(ends[1], k.job, k.piece.lane, 0);
}

static void a_restart_keeps_the_last_of_several_holders(void **state)
{
    struct kept k = keeping_begun(*state);
    struct end *third = keeping_aggregator(k.rig);
    end_say_goodbye(k.holder);
    keeping_holder_hears(&k, third, k.owner, 1, 1, true);
    keeping_lane_hears(&k, k.owner, third->aggregator, false);
    keeping_aggregator(k.rig); /* the new aggregator must have no effect */
    struct end *ends[] = {k.owner, third};
    uint32_t holder = third->aggregator;
    restart(&k, ends, 2);
    assert_int_equal(ends[1]->aggregator, holder);
    expect_told(&k, ends[0], ends[1]);
    resume(&k);
    keeping_expect_silence(ends[0], ends[1]);
}

static void a_restart_keeps_the_holder_that_came_with_a_move(void **state)
{
    struct kept k = keeping_begun(*state);
    struct end *asker = rig_connect_locally(k.rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    keeping_open(k.holder);
    keeping_expect_moved(asker, keeping_order_move(asker, k.holder));
    k.piece.lane = k.holder->lanes[0];
    k.piece.epoch = 2;
    struct end *ends[] = {k.holder, k.owner};
    restart(&k, ends, 2);
    expect_told(&k, ends[0], ends[1]);
}

/* The lane waits for the lost holder. Until a worker returns, the coordinator does not know the
 * job's durability. */
static void a_holder_lost_before_the_workers_return_is_replaced_when_they_return(void **state)
{
    struct kept k = keeping_begun(*state);
    struct end *ends[] = {k.owner, k.holder, keeping_aggregator(k.rig)};
    restart(&k, ends, 3);
    expect_told(&k, ends[0], ends[1]);
    end_say_goodbye(ends[1]);
    resume(&k);
    keeping_holder_hears(&k, ends[2], ends[0], 1, 1, true);
    keeping_lane_hears(&k, ends[0], ends[2]->aggregator, false);
}

static void a_returned_owner_gets_its_holders_again(void **state)
{
    struct kept k = keeping_begun(*state);
    struct end before = *k.owner;
    WIRE(PieceHeld) h = held(&k);
    end_close(k.owner);
    rig_settle(k.rig);
    k.owner = rig_rejoin(k.rig, &before, 1, &h);
    keeping_lane_hears(&k, k.owner, k.holder->aggregator, false);
    keeping_expect_silence(k.owner, k.holder);
}

/* --- the end --- */

static void possible_holders_are_informed_of_the_end_of_a_job(void **state)
{
    struct kept k = keeping_begun(*state);
    end_leave(k.worker);
    envelope *message = end_expect(k.holder, BODY(COPIES_END));
    assert_int_equal(message->copies_end->job_id, k.job);
    message_free(message);
    end_expect_none(k.holder, BODY(COPIES_END));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_holder_gets_a_ticket_that_the_lane_has_stored),
        CASE(each_ticket_is_unique),
        CASE(a_ticket_for_a_job_without_copies_is_refused),
        CASE(a_ticket_for_a_lane_without_copies_is_refused),
        CASE(a_request_for_an_absent_lane_is_repeated),
        CASE(a_request_to_a_lane_that_grants_nothing_is_repeated),
        CASE(only_an_aggregator_that_has_joined_gets_tickets),
        CASE(a_holder_that_cannot_reach_a_lane_is_replaced),
        CASE(without_a_third_aggregator_a_lane_continues_without_an_unreachable_holder),
        CASE(a_holder_that_refuses_copies_of_a_lane_loses_that_lane),
        CASE(a_holder_without_memory_for_a_copy_is_replaced),
        CASE(a_holder_that_has_refused_is_not_chosen_for_some_time),
        CASE(a_holder_that_has_refused_is_chosen_again_later),
        CASE(a_lane_that_refuses_a_holder_gets_the_ticket_again),
        CASE(a_restart_keeps_holders_and_sends_their_names_to_all_again),
        CASE(a_restart_keeps_the_last_of_several_holders),
        CASE(a_restart_keeps_the_holder_that_came_with_a_move),
        CASE(a_holder_lost_before_the_workers_return_is_replaced_when_they_return),
        CASE(a_returned_owner_gets_its_holders_again),
        CASE(possible_holders_are_informed_of_the_end_of_a_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
