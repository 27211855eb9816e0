/* Tests declarations, undeclarations and tickets: the messages that clients and lanes receive, and
 * the order of these messages. */
#include "test/unit/coordinator/coordinator_rig.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

/* Reads a DeclareReply of one tensor. Returns the tensor's number and its first piece. */
static uint32_t declared(struct end *e, WIRE(Piece) * ret_piece)
{
    envelope *reply = end_expect(e, BODY(DECLARE_REPLY));
    assert_int_equal(reply->declare_reply->n_tensors, 1);
    uint32_t tensor = reply->declare_reply->tensors[0]->tensor;
    if (ret_piece)
        *ret_piece = *reply->declare_reply->tensors[0]->pieces[0];
    message_free(reply);
    return tensor;
}

static void refused(struct end *e, int code, const char *text)
{
    envelope *reply = end_expect(e, BODY(FAILURE));
    if (!strstr(reply->failure->text, text))
        fail_msg("'%s' does not say '%s'", reply->failure->text, text);
    assert_int_equal(reply->failure->code, code);
    message_free(reply);
}

static void a_declare_is_answered_after_the_lane_has_confirmed(void **state)
{
    struct end *lane = rig_aggregator(*state, 1);
    struct end *zero = rig_join(*state, "resnet", 0, 2, NULL, NULL);
    lane->answers = false;
    end_declare_one(zero, "w", 100);
    envelope *place = end_expect(lane, BODY(PLACE_REQUEST));
    assert_int_equal(place->place_request->lane, lane->lanes[0]);
    assert_int_equal(place->place_request->workers, 2);
    assert_false(place->place_request->recovering);
    assert_int_equal(place->place_request->n_pieces, 1);
    assert_string_equal(place->place_request->pieces[0]->tensor, "w");
    assert_int_equal(place->place_request->pieces[0]->elements, 100);
    end_expect_none(zero, BODY(DECLARE_REPLY));
    end_answer(lane, place);
    message_free(place);
    declared(zero, NULL);
}

static void a_rank_that_declares_before_the_lane_has_answered_waits_too(void **state)
{
    WIRE(Piece) first, second;
    struct end *lane = rig_aggregator(*state, 1);
    struct end *zero = rig_join(*state, "resnet", 0, 2, NULL, NULL);
    struct end *one = rig_join(*state, "resnet", 1, 2, NULL, NULL);
    lane->answers = false;
    end_declare_one(zero, "w", 100);
    envelope *place = end_expect(lane, BODY(PLACE_REQUEST));
    end_declare_one(one, "w", 100);
    end_expect_none(one, BODY(DECLARE_REPLY));
    end_answer(lane, place);
    message_free(place);
    assert_int_equal(declared(zero, &first), declared(one, &second));
    assert_int_equal(first.id, second.id);
    assert_int_equal(first.epoch, 1);
    end_expect_none(lane, BODY(PLACE_REQUEST));
}

static void a_repeated_declare_gets_the_same_tensor_or_an_error_with_both_specs(void **state)
{
    rig_aggregator(*state, 1);
    struct end *zero = rig_join(*state, "resnet", 0, 2, NULL, NULL);
    end_declare_one(zero, "w", 100);
    uint32_t tensor = declared(zero, NULL);
    end_declare_one(zero, "w", 100);
    assert_int_equal(declared(zero, NULL), tensor);
    end_declare_one(zero, "w", 50);
    refused(zero, -EEXIST, "rank 0 declared it as f32[100] before, now as f32[50]");
    end_declare_one(zero, "w", 100);
    assert_int_equal(declared(zero, NULL), tensor);
}

static void two_specs_of_one_name_in_a_declare_must_be_equal(void **state)
{
    static const char *const names[] = {"w", "w"};
    rig_aggregator(*state, 1);
    struct end *zero = rig_join(*state, "resnet", 0, 1, NULL, NULL);
    end_declare(zero, 2, names, (uint64_t[]){3, 4});
    refused(zero, -EEXIST, "f32[3] before, now as f32[4]; undeclare the tensor first");
    end_declare(zero, 2, names, (uint64_t[]){4, 4});
    envelope *reply = end_expect(zero, BODY(DECLARE_REPLY));
    assert_int_equal(reply->declare_reply->tensors[0]->tensor,
                     reply->declare_reply->tensors[1]->tensor);
    message_free(reply);
}

static void all_ranks_that_disagree_get_the_error_and_the_tensor_stays_failed(void **state)
{
    static const char text[] = "tensor 'w' of job resnet: ranks 0, 2 declared f32[100], rank 1 "
                               "declared f32[99]; all ranks must declare the same";
    rig_aggregator(*state, 1);
    struct end *zero = rig_join(*state, "resnet", 0, 3, NULL, NULL);
    struct end *one = rig_join(*state, "resnet", 1, 3, NULL, NULL);
    struct end *two = rig_join(*state, "resnet", 2, 3, NULL, NULL);
    end_declare_one(zero, "w", 100);
    uint32_t tensor = declared(zero, NULL);
    end_declare_one(two, "w", 100);
    declared(two, NULL);
    end_declare_one(one, "w", 99);
    refused(one, -EINVAL, text);
    for (int i = 0; i < 2; i++) {
        envelope *message = end_expect(i ? two : zero, BODY(TENSOR_FAILURE));
        assert_int_equal(message->tensor_failure->tensor, tensor);
        assert_int_equal(message->tensor_failure->code, -EINVAL);
        assert_string_equal(message->tensor_failure->text, text);
        message_free(message);
    }
    end_declare_one(one, "w", 100);
    refused(one, -EINVAL, text);
    end_expect_none(one, BODY(TENSOR_FAILURE));
}

static void a_tensor_without_elements_has_one_piece(void **state)
{
    WIRE(Piece) piece;
    rig_aggregator(*state, 2);
    struct end *zero = rig_join(*state, "resnet", 0, 1, NULL, NULL);
    end_declare_one(zero, "barrier", 0);
    declared(zero, &piece);
    assert_int_equal(piece.elements, 0);
}

static void bad_specs_are_refused_naming_the_field(void **state)
{
    char longest[257];
    WIRE(TensorSpec) spec = GRADPOOL__WIRE__TENSOR_SPEC__INIT, *list[] = {&spec};
    WIRE(DeclareRequest) declare = GRADPOOL__WIRE__DECLARE_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    rig_aggregator(*state, 1);
    struct end *zero = rig_join(*state, "resnet", 0, 1, NULL, NULL);
    memset(longest, 't', 256);
    longest[256] = 0;
    end_declare_one(zero, longest, 1);
    refused(zero, -EINVAL, "name has 1 to 255 bytes; this one has 256");
    end_declare_one(zero, "", 1);
    refused(zero, -EINVAL, "1 to 255 bytes");
    end_declare_one(zero, "w", UINT64_MAX / 4);
    refused(zero, -EINVAL, "elements are more than 1 TiB; declare several tensors");
    spec.name = "w";
    spec.dtype = 9;
    declare.tensors = list;
    declare.n_tensors = 1;
    request.body_case = BODY(DECLARE_REQUEST);
    request.declare_request = &declare;
    end_ask_refused(zero, &request, -EINVAL, "dtype 9 is not known");
}

static void a_declare_that_is_refused_leaves_nothing_behind(void **state)
{
    static const char *const names[] = {"good", "bad"};
    struct end *lane = rig_aggregator(*state, 1);
    struct end *zero = rig_join(*state, "resnet", 0, 1, NULL, NULL);
    end_declare(zero, 2, names, (uint64_t[]){10, UINT64_MAX / 4});
    refused(zero, -EINVAL, "1 TiB");
    end_expect_none(lane, BODY(PLACE_REQUEST));
    end_declare_one(zero, "good", 11);
    assert_int_equal(declared(zero, NULL), 1);
}

static void a_declare_without_a_lane_names_the_reason(void **state)
{
    struct end *zero = rig_join(*state, "resnet", 0, 1, NULL, NULL);
    end_declare_one(zero, "w", 1);
    refused(zero, -ENOSPC, "no aggregator is up");
    rig_aggregator(*state, 1);
    end_declare_one(zero, "w", 1);
    declared(zero, NULL);
}

static void a_lane_that_refuses_fails_the_declare_with_its_words(void **state)
{
    WIRE(Failure) failure = GRADPOOL__WIRE__FAILURE__INIT;
    envelope reply = GRADPOOL__WIRE__ENVELOPE__INIT;
    struct end *lane = rig_aggregator(*state, 1);
    struct end *zero = rig_join(*state, "resnet", 0, 1, NULL, NULL);
    lane->answers = false;
    end_declare_one(zero, "w", 1);
    envelope *place = end_expect(lane, BODY(PLACE_REQUEST));
    failure.code = -ENOSPC;
    failure.text = "lane 1 has no memory left";
    reply.id = place->id;
    reply.body_case = BODY(FAILURE);
    reply.failure = &failure;
    assert_int_equal(channel_send(lane->channel, &reply), 0);
    message_free(place);
    refused(zero, -ENOSPC, "no memory left");
    end_declare_one(zero, "w", 1); /* a later declaration is refused, too */
    refused(zero, -ENOSPC, "no memory left");
    kept_log_expect(" did not accept 1 pieces: ");
}

static void small_pieces_of_a_lane_share_a_task_up_to_4_mib(void **state)
{
    static const char *const names[] = {"a", "b", "c"};
    rig_aggregator(*state, 1);
    struct end *zero = rig_join(*state, "resnet", 0, 1, NULL, NULL);
    end_declare(zero, 3, names, (uint64_t[]){MIB / 4, MIB / 4, 3 * MIB / 4});
    envelope *reply = end_expect(zero, BODY(DECLARE_REPLY));
    WIRE(TensorRoute) **routes = reply->declare_reply->tensors;
    assert_int_equal(routes[0]->pieces[0]->task, routes[1]->pieces[0]->task);
    assert_true(routes[2]->pieces[0]->task != routes[0]->pieces[0]->task);
    uint32_t open = routes[2]->pieces[0]->task;
    WIRE(Piece) piece;
    message_free(reply);
    /* the current task has 3 MiB, so the new tensor fits into the task */
    end_declare_one(zero, "d", MIB / 4);
    declared(zero, &piece);
    assert_int_equal(piece.task, open);
}

static void a_big_tensor_is_cut_and_covers_every_element_once(void **state)
{
    rig_aggregator(*state, 2);
    struct end *zero = rig_join(*state, "resnet", 0, 1, NULL, NULL);
    end_declare_one(zero, "w", 5 * MIB + 3);
    envelope *reply = end_expect(zero, BODY(DECLARE_REPLY));
    const WIRE(TensorRoute) *route = reply->declare_reply->tensors[0];
    uint64_t next = 0;
    assert_true(route->n_pieces >= 5);
    for (size_t i = 0; i < route->n_pieces; i++) {
        assert_int_equal(route->pieces[i]->first, next);
        next += route->pieces[i]->elements;
    }
    assert_int_equal(next, 5 * MIB + 3);
    message_free(reply);
}

static void the_last_rank_that_undeclares_frees_the_name(void **state)
{
    WIRE(Piece) piece;
    struct end *lane = rig_aggregator(*state, 1);
    struct end *zero = rig_join(*state, "resnet", 0, 2, NULL, NULL);
    struct end *one = rig_join(*state, "resnet", 1, 2, NULL, NULL);
    end_declare_one(zero, "w", 100);
    uint32_t tensor = declared(zero, &piece);
    end_declare_one(one, "w", 100);
    declared(one, NULL);
    end_undeclare(zero, tensor);
    end_undeclare(zero, tensor); /* a request may be repeated */
    end_expect_none(lane, BODY(DROP_REQUEST));
    end_undeclare(one, tensor);
    envelope *drop = end_expect(lane, BODY(DROP_REQUEST));
    assert_int_equal(drop->drop_request->n_pieces, 1);
    assert_int_equal(drop->drop_request->pieces[0], piece.id);
    message_free(drop);
    end_declare_one(zero, "w", 7);
    assert_true(declared(zero, NULL) != tensor);
}

static void the_end_of_a_job_clears_its_lanes(void **state)
{
    uint32_t job;
    struct end *lane = rig_aggregator(*state, 1);
    struct end *zero = rig_join(*state, "resnet", 0, 1, NULL, &job);
    end_declare_one(zero, "w", 100);
    declared(zero, NULL);
    end_leave(zero);
    envelope *drop = end_expect(lane, BODY(DROP_REQUEST));
    assert_int_equal(drop->drop_request->job_id, job);
    assert_int_equal(drop->drop_request->n_pieces, 0);
    message_free(drop);
}

/* --- tickets --- */

static void ticket_request(envelope *request, WIRE(TicketRequest) * ticket, uint32_t lane)
{
    gradpool__wire__envelope__init(request);
    gradpool__wire__ticket_request__init(ticket);
    ticket->lane = lane;
    request->body_case = BODY(TICKET_REQUEST);
    request->ticket_request = ticket;
}

static void a_rank_gets_a_ticket_once_the_lane_has_stored_it(void **state)
{
    envelope request;
    WIRE(TicketRequest) ticket;
    struct record_connect connect;
    uint32_t job;
    struct end *lane = rig_aggregator(*state, 1);
    struct end *zero = rig_join(*state, "resnet", 0, 1, NULL, &job);
    end_declare_one(zero, "w", 100);
    declared(zero, NULL);
    lane->answers = false;
    ticket_request(&request, &ticket, lane->lanes[0]);
    end_send(zero, &request);
    envelope *grant = end_expect(lane, BODY(GRANT_REQUEST));
    end_expect_none(zero, BODY(TICKET_REPLY));
    end_answer(lane, grant);
    envelope *reply = end_expect(zero, BODY(TICKET_REPLY));
    assert_int_equal(reply->ticket_reply->ticket.len, sizeof connect);
    assert_int_equal(grant->grant_request->ticket.len, sizeof connect);
    assert_memory_equal(reply->ticket_reply->ticket.data, grant->grant_request->ticket.data,
                        sizeof connect);
    memcpy(&connect, reply->ticket_reply->ticket.data, sizeof connect);
    assert_int_equal(connect.magic, RECORD_MAGIC);
    assert_int_equal(connect.job, job);
    assert_int_equal(connect.rank, 0);
    assert_int_equal(connect.lane, lane->lanes[0]);
    assert_true(connect.incarnation == lane->incarnation);
    assert_string_equal(reply->ticket_reply->address->shm, "@lane");
    message_free(grant);
    message_free(reply);
}

static void each_ticket_is_unique(void **state)
{
    envelope request;
    WIRE(TicketRequest) ticket;
    struct end *lane = rig_aggregator(*state, 1);
    struct end *zero = rig_join(*state, "resnet", 0, 1, NULL, NULL);
    end_declare_one(zero, "w", 100);
    declared(zero, NULL);
    ticket_request(&request, &ticket, lane->lanes[0]);
    envelope *first = end_ask(zero, &request), *second = end_ask(zero, &request);
    assert_memory_not_equal(first->ticket_reply->ticket.data, second->ticket_reply->ticket.data,
                            sizeof(struct record_connect));
    message_free(first);
    message_free(second);
}

static void a_lane_without_pieces_of_the_job_gives_no_ticket(void **state)
{
    envelope request;
    WIRE(TicketRequest) ticket;
    struct end *lane = rig_aggregator(*state, 1);
    struct end *zero = rig_join(*state, "resnet", 0, 1, NULL, NULL);
    ticket_request(&request, &ticket, lane->lanes[0]);
    end_ask_refused(zero, &request, -ENOENT, "job resnet has no pieces on lane");
    ticket_request(&request, &ticket, 999);
    end_ask_refused(zero, &request, -ENOENT, "has no pieces on lane 999");
}

static void expect_failure(struct end *e, uint64_t id, int code, const char *text)
{
    envelope *reply = end_expect_reply(e, id);
    assert_int_equal(reply->body_case, BODY(FAILURE));
    assert_int_equal(reply->failure->code, code);
    assert_non_null(strstr(reply->failure->text, text));
    message_free(reply);
}

/* The worker gets no route to another lane, so the coordinator must send a ticket for this lane. */
static void a_rank_gets_the_ticket_of_an_absent_lane_once_the_lane_returns(void **state)
{
    envelope request;
    WIRE(TicketRequest) ticket;
    uint32_t job;
    struct end *lane = rig_aggregator(*state, 1);
    struct end *zero = rig_join(*state, "resnet", 0, 1, NULL, &job);
    WIRE(PieceHeld) holds = GRADPOOL__WIRE__PIECE_HELD__INIT;
    WIRE(Piece) piece;
    end_declare_one(zero, "w", 100);
    declared(zero, &piece);
    end_close(lane);
    rig_settle(*state);
    ticket_request(&request, &ticket, lane->lanes[0]);
    uint64_t id = end_send(zero, &request);
    end_expect_none(zero, BODY(FAILURE));
    holds.job_id = job;
    holds.piece = piece.id;
    holds.lane = piece.lane;
    holds.epoch = piece.epoch;
    struct end *again = rig_rejoin(*state, lane, 1, &holds);
    envelope *reply = end_expect_reply(zero, id);
    assert_int_equal(reply->body_case, BODY(TICKET_REPLY));
    assert_int_equal(reply->ticket_reply->address->lane, again->lanes[0]);
    message_free(reply);
}

static void the_ticket_after_a_failed_connection_is_delayed(void **state)
{
    envelope request;
    WIRE(TicketRequest) ticket;
    struct end *lane = rig_aggregator(*state, 1);
    struct end *zero = rig_join(*state, "resnet", 0, 1, NULL, NULL);
    end_declare_one(zero, "w", 100);
    declared(zero, NULL);
    ticket_request(&request, &ticket, lane->lanes[0]);
    ticket.failures = 2;
    end_send(zero, &request);
    end_expect_none(zero, BODY(TICKET_REPLY));
    message_free(end_expect(zero, BODY(TICKET_REPLY)));
}

static void the_request_for_an_unconfirmed_ticket_is_repeated(void **state)
{
    envelope request;
    WIRE(TicketRequest) ticket;
    struct end *lane = rig_aggregator(*state, 1);
    struct end *zero = rig_join(*state, "resnet", 0, 1, NULL, NULL);
    end_declare_one(zero, "w", 100);
    declared(zero, NULL);
    lane->answers = false;
    ticket_request(&request, &ticket, lane->lanes[0]);
    uint64_t id = end_send(zero, &request);
    message_free(end_expect(lane, BODY(GRANT_REQUEST)));
    end_close(lane);
    expect_failure(zero, id, -EAGAIN, "lane 1: ");
}

static void the_wait_for_a_ticket_ends_with_the_loss_of_its_lane(void **state)
{
    envelope request;
    WIRE(TicketRequest) ticket;
    struct end *lane = rig_local_aggregator(*state, 1, "");
    struct end *zero = rig_join(*state, "resnet", 0, 1, NULL, NULL);
    end_declare_one(zero, "w", 100);
    declared(zero, NULL);
    struct end *other = rig_aggregator(*state, 1);
    end_close(lane);
    rig_settle(*state);
    ticket_request(&request, &ticket, lane->lanes[0]);
    uint64_t id = end_send(zero, &request);
    end_expect_none(zero, BODY(FAILURE));
    rig_kill(*state, lane->process);
    envelope *change = end_expect(zero, BODY(ROUTE_CHANGE));
    assert_int_equal(change->route_change->tensors[0]->pieces[0]->lane, other->lanes[0]);
    message_free(change);
    expect_failure(zero, id, -ENOENT, "has no pieces on lane 1");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_declare_is_answered_after_the_lane_has_confirmed),
        CASE(a_rank_that_declares_before_the_lane_has_answered_waits_too),
        CASE(a_repeated_declare_gets_the_same_tensor_or_an_error_with_both_specs),
        CASE(two_specs_of_one_name_in_a_declare_must_be_equal),
        CASE(all_ranks_that_disagree_get_the_error_and_the_tensor_stays_failed),
        CASE(a_tensor_without_elements_has_one_piece),
        CASE(bad_specs_are_refused_naming_the_field),
        CASE(a_declare_that_is_refused_leaves_nothing_behind),
        CASE(a_declare_without_a_lane_names_the_reason),
        CASE(a_lane_that_refuses_fails_the_declare_with_its_words),
        CASE(small_pieces_of_a_lane_share_a_task_up_to_4_mib),
        CASE(a_big_tensor_is_cut_and_covers_every_element_once),
        CASE(the_last_rank_that_undeclares_frees_the_name),
        CASE(the_end_of_a_job_clears_its_lanes),
        CASE(a_rank_gets_a_ticket_once_the_lane_has_stored_it),
        CASE(each_ticket_is_unique),
        CASE(a_lane_without_pieces_of_the_job_gives_no_ticket),
        CASE(a_rank_gets_the_ticket_of_an_absent_lane_once_the_lane_returns),
        CASE(the_ticket_after_a_failed_connection_is_delayed),
        CASE(the_request_for_an_unconfirmed_ticket_is_repeated),
        CASE(the_wait_for_a_ticket_ends_with_the_loss_of_its_lane),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
