/* Aggregators of the rig: their joins, and their automatic answers. */
#include "test/unit/coordinator/coordinator_rig.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

static void answer_release(struct end *e, const envelope *request, envelope *reply)
{
    WIRE(ReleaseReply) released = GRADPOOL__WIRE__RELEASE_REPLY__INIT;
    size_t count = request->release_request->n_pieces;
    released.rounds = calloc(count, sizeof *released.rounds);
    released.state_bytes = calloc(count, sizeof *released.state_bytes);
    released.steps = calloc(count, sizeof *released.steps);
    released.n_rounds = released.n_state_bytes = released.n_steps = count;
    for (size_t i = 0; i < count; i++) {
        uint64_t lag = i > 0 && i + 1 == count ? e->lag : 0;
        released.rounds[i] = (e->round ? e->round : RIG_ROUND) - lag;
        released.steps[i] = e->steps;
        released.state_bytes[i] = e->state_bytes;
    }
    released.recovering = e->recovering;
    reply->body_case = BODY(RELEASE_REPLY);
    reply->release_reply = &released;
    channel_send(e->channel, reply);
    free(released.rounds);
    free(released.state_bytes);
    free(released.steps);
}

/* Answers with a state. Each byte is the low byte of its offset in KiB. */
static void answer_state(struct end *e, const envelope *request, envelope *reply)
{
    static uint8_t bytes[RIG_STATE_BYTES_MAX];
    WIRE(StateReply) state = GRADPOOL__WIRE__STATE_REPLY__INIT;
    uint64_t offset = request->state_request->offset, left = e->state_bytes - offset;
    state.data.data = bytes;
    state.data.len = left < sizeof bytes ? left : sizeof bytes;
    for (size_t i = 0; i < state.data.len; i++)
        bytes[i] = (uint8_t)((offset + i) >> 10);
    reply->body_case = BODY(STATE_REPLY);
    reply->state_reply = &state;
    channel_send(e->channel, reply);
}

static void refuse(struct end *e, envelope *reply)
{
    WIRE(Failure) failure = GRADPOOL__WIRE__FAILURE__INIT;
    failure.code = e->refusal ? e->refusal : -EIO;
    failure.text = "it does not want to";
    reply->body_case = BODY(FAILURE);
    reply->failure = &failure;
    channel_send(e->channel, reply);
}

void end_answer(struct end *e, const envelope *request)
{
    WIRE(Done) done = GRADPOOL__WIRE__DONE__INIT;
    WIRE(StatsReply) stats = GRADPOOL__WIRE__STATS_REPLY__INIT;
    envelope reply = GRADPOOL__WIRE__ENVELOPE__INIT;
    reply.id = request->id;
    if ((int)request->body_case == e->refuses)
        return refuse(e, &reply);
    if (request->body_case == BODY(RELEASE_REQUEST))
        return answer_release(e, request, &reply);
    if (request->body_case == BODY(STATE_REQUEST))
        return answer_state(e, request, &reply);
    if (request->body_case == BODY(STATS_REQUEST)) {
        stats.cpu_ns = 42;
        reply.body_case = BODY(STATS_REPLY);
        reply.stats_reply = &stats;
    } else {
        reply.body_case = BODY(DONE);
        reply.done = &done;
    }
    channel_send(e->channel, &reply);
}

static void join_aggregator(struct end *e, uint32_t lanes, const char *grant, size_t held_count,
                            const WIRE(PieceHeld) * held, const WIRE(TableHeld) * table)
{
    WIRE(TableHeld) *tables[] = {(WIRE(TableHeld) *)table};
    WIRE(AggregatorJoin) join = GRADPOOL__WIRE__AGGREGATOR_JOIN__INIT;
    WIRE(LaneOffer) offers[4], *offer_list[4];
    WIRE(PieceHeld) * held_list[16];
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    for (uint32_t i = 0; i < lanes; i++) {
        gradpool__wire__lane_offer__init(&offers[i]);
        offers[i].index = offers[i].core = i;
        offers[i].piece_bytes = offers[i].rank_bytes = RIG_COST_BYTES;
        offers[i].memory_bytes = e->rig->memory_bytes;
        offers[i].network_bytes_per_s = e->rig->network_bytes_per_s;
        offers[i].shm = "@lane";
        offers[i].ofi = "10.0.0.1:5000";
        offer_list[i] = &offers[i];
    }
    for (size_t i = 0; i < held_count; i++)
        held_list[i] = (WIRE(PieceHeld) *)&held[i];
    join.incarnation = e->incarnation;
    join.aggregator = e->aggregator;
    join.node = "node7";
    join.pid = 77;
    join.grant = (char *)grant;
    join.lanes = offer_list;
    join.n_lanes = lanes;
    join.held = held_list;
    join.n_held = held_count;
    join.tables = tables;
    join.n_tables = table ? 1 : 0;
    request.body_case = BODY(AGGREGATOR_JOIN);
    request.aggregator_join = &join;
    envelope *reply = end_ask(e, &request);
    if (reply->body_case != BODY(AGGREGATOR_WELCOME))
        fail_msg("not welcome: %s", reply->failure ? reply->failure->text : "?");
    e->aggregator = reply->aggregator_welcome->aggregator;
    e->lanes_count = (uint32_t)reply->aggregator_welcome->n_lanes;
    for (uint32_t i = 0; i < e->lanes_count; i++)
        e->lanes[i] = reply->aggregator_welcome->lanes[i];
    message_free(reply);
}

static struct end *first_join(struct end *e, uint32_t lanes, const char *grant)
{
    assert_int_equal(getrandom(&e->incarnation, sizeof e->incarnation, 0), sizeof e->incarnation);
    e->answers = true;
    join_aggregator(e, lanes, grant, 0, NULL, NULL);
    return e;
}

struct end *rig_aggregator(struct rig *rig, uint32_t lanes)
{
    return first_join(rig_connect_node(rig), lanes, "");
}

struct end *rig_local_aggregator(struct rig *rig, uint32_t lanes, const char *grant)
{
    return first_join(rig_connect_as_child(rig, GRADPOOL__WIRE__ROLE__ROLE_AGGREGATOR), lanes,
                      grant);
}

static struct end *reconnect(struct rig *rig, const struct end *old)
{
    struct end *e = rig_connect_node(rig);
    e->aggregator = old->aggregator;
    e->incarnation = old->incarnation;
    e->answers = true;
    return e;
}

struct end *rig_rejoin(struct rig *rig, const struct end *old, size_t held_count,
                       const WIRE(PieceHeld) * held)
{
    struct end *e = reconnect(rig, old);
    join_aggregator(e, old->lanes_count, "", held_count, held, NULL);
    return e;
}

struct end *rig_rejoin_with_table(struct rig *rig, const struct end *old,
                                  const WIRE(TableHeld) * held)
{
    struct end *e = reconnect(rig, old);
    join_aggregator(e, old->lanes_count, "", 0, NULL, held);
    return e;
}

uint64_t end_declare_table(struct end *e, const char *name, uint32_t dim, uint32_t shards)
{
    WIRE(TableSpec) spec = GRADPOOL__WIRE__TABLE_SPEC__INIT, *specs[] = {&spec};
    WIRE(DeclareRequest) declare = GRADPOOL__WIRE__DECLARE_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    spec.name = (char *)name;
    spec.dim = dim;
    spec.shards = shards;
    spec.dtype = 1;
    spec.rule = 2;
    declare.tables = specs;
    declare.n_tables = 1;
    request.body_case = BODY(DECLARE_REQUEST);
    request.declare_request = &declare;
    return end_send(e, &request);
}

void end_say_goodbye(struct end *e)
{
    WIRE(AggregatorLeave) leave = GRADPOOL__WIRE__AGGREGATOR_LEAVE__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    request.body_case = BODY(AGGREGATOR_LEAVE);
    request.aggregator_leave = &leave;
    message_free(end_ask(e, &request));
}
