/* See keeping_case.h. */
#include "test/unit/coordinator/keeping_case.h"

#include "svc/coordinator/aggregator/lane.h"
#include "svc/reduce/update.h"
#include "svc/wire/terms.h"

struct end *keeping_join(struct rig *rig, const char *job, enum durability durability,
                         uint64_t *session, uint32_t *job_id)
{
    envelope request;
    WIRE(JoinRequest) join;
    struct end *e = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    join_request(&request, &join, job, 0, 1);
    join.durability = durability;
    join.session = *session;
    join.job_id = *session ? *job_id : 0;
    envelope *reply = end_ask(e, &request);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    *session = reply->join_reply->session;
    *job_id = reply->join_reply->job_id;
    message_free(reply);
    return e;
}

uint64_t keeping_ask_declare(struct end *worker, const char *name)
{
    struct terms terms = {.rule = UPDATE_ADAM};
    WIRE(TensorSpec) spec = GRADPOOL__WIRE__TENSOR_SPEC__INIT, *list[] = {&spec};
    WIRE(DeclareRequest) declare = GRADPOOL__WIRE__DECLARE_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    spec.name = (char *)name;
    spec.dtype = REDUCE_F32;
    spec.elements = KEPT_ELEMENTS;
    spec.terms.data = (uint8_t *)&terms;
    spec.terms.len = sizeof terms;
    declare.tensors = list;
    declare.n_tensors = 1;
    request.body_case = BODY(DECLARE_REQUEST);
    request.declare_request = &declare;
    return end_send(worker, &request);
}

WIRE(Piece) keeping_declare(struct end *worker, const char *name)
{
    envelope *reply = end_expect_reply(worker, keeping_ask_declare(worker, name));
    assert_int_equal(reply->body_case, BODY(DECLARE_REPLY));
    assert_int_equal(reply->declare_reply->tensors[0]->n_pieces, 1);
    WIRE(Piece) piece = *reply->declare_reply->tensors[0]->pieces[0];
    message_free(reply);
    return piece;
}

static void use(struct end *aggregator, enum lane_use use)
{
    for (uint32_t i = 0; i < aggregator->lanes_count; i++)
        lane_find(aggregator->rig->coordinator->service, aggregator->lanes[i])->use = use;
}

void keeping_withhold(struct end *aggregator) { use(aggregator, LANE_WITHHELD); }

void keeping_open(struct end *aggregator) { use(aggregator, LANE_OPEN); }

struct end *keeping_aggregator(struct rig *rig)
{
    struct end *e = rig_aggregator(rig, 1);
    keeping_withhold(e);
    return e;
}

struct kept keeping_begin(struct rig *rig, enum durability durability)
{
    struct kept k = {.rig = rig, .owner = rig_aggregator(rig, 1)};
    k.holder = keeping_aggregator(rig);
    k.worker = keeping_join(rig, "resnet", durability, &k.session, &k.job);
    k.piece = keeping_declare(k.worker, "w");
    assert_int_equal(k.piece.lane, k.owner->lanes[0]);
    return k;
}

struct kept keeping_begun(struct rig *rig)
{
    struct kept k = keeping_begin(rig, DURABILITY_REPLICA);
    assert_int_equal(keeping_placed_with(&k, k.owner), k.holder->aggregator);
    keeping_holder_hears(&k, k.holder, k.owner, 1, 1, true);
    keeping_lane_hears(&k, k.owner, k.holder->aggregator, false);
    return k;
}

void keeping_lane_hears(const struct kept *k, struct end *owner, uint32_t holder, bool when_known)
{
    envelope *message = end_expect(owner, BODY(HOLDER_REQUEST));
    const WIRE(HolderRequest) *told = message->holder_request;
    assert_int_equal(told->lane, owner->lanes[0]);
    assert_int_equal(told->job_id, k->job);
    assert_int_equal(told->holder, holder);
    assert_int_equal(told->when_known, when_known);
    assert_int_equal(told->n_pieces, 1);
    assert_int_equal(told->pieces[0], k->piece.id);
    message_free(message);
}

void keeping_holder_hears(const struct kept *k, struct end *holder, const struct end *owner,
                          uint32_t epoch, uint32_t lost_epoch, bool begins)
{
    envelope *message = end_expect(holder, BODY(COPIES_REQUEST));
    const WIRE(CopiesRequest) *told = message->copies_request;
    assert_int_equal(told->lane, owner->lanes[0]);
    assert_int_equal(told->job_id, k->job);
    assert_string_equal(told->job, "resnet");
    assert_int_equal(told->n_copies, 1);
    assert_int_equal(told->copies[0]->piece, k->piece.id);
    assert_int_equal(told->copies[0]->epoch, epoch);
    assert_int_equal(told->copies[0]->lost_epoch, lost_epoch);
    assert_int_equal(told->copies[0]->bytes, KEPT_BYTES);
    assert_int_equal(told->copies[0]->begins, begins);
    message_free(message);
}

uint32_t keeping_placed_with(const struct kept *k, struct end *owner)
{
    envelope *message = end_expect(owner, BODY(PLACE_REQUEST));
    const WIRE(PlaceRequest) *place = message->place_request;
    assert_int_equal(place->job_id, k->job);
    assert_int_equal(place->n_pieces, 1);
    assert_int_equal(place->pieces[0]->piece, k->piece.id);
    uint32_t holder = place->pieces[0]->holder;
    message_free(message);
    return holder;
}

void keeping_expect_silence(struct end *owner, struct end *holder)
{
    end_expect_none(owner, BODY(HOLDER_REQUEST));
    end_expect_none(holder, BODY(COPIES_REQUEST));
}

uint64_t keeping_order_move(struct end *asker, const struct end *target)
{
    WIRE(MoveRequest) move = GRADPOOL__WIRE__MOVE_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    move.job = "resnet";
    move.lane = target->lanes[0];
    request.body_case = BODY(MOVE_REQUEST);
    request.move_request = &move;
    return end_send(asker, &request);
}

void keeping_expect_moved(struct end *asker, uint64_t order)
{
    envelope *reply = end_expect_reply(asker, order);
    assert_int_equal(reply->body_case, BODY(MOVE_REPLY));
    assert_int_equal(reply->move_reply->tasks, 1);
    assert_string_equal(reply->move_reply->stays, "");
    message_free(reply);
}

void keeping_ask_ticket(struct end *holder, uint32_t job, uint32_t lane, uint32_t failures)
{
    WIRE(CopyTicketRequest) ask = GRADPOOL__WIRE__COPY_TICKET_REQUEST__INIT;
    envelope message = GRADPOOL__WIRE__ENVELOPE__INIT;
    ask.job_id = job;
    ask.lane = lane;
    ask.failures = failures;
    message.body_case = BODY(COPY_TICKET_REQUEST);
    message.copy_ticket_request = &ask;
    channel_send(holder->channel, &message);
}
