/* See moving_case.h. */
#include "test/unit/coordinator/moving_case.h"

#include <string.h>

void moving_passes(struct end *lane, int body) { message_free(end_expect(lane, body)); }

uint64_t moving_declare(struct end *worker, const char *name, WIRE(Piece) * ret_piece)
{
    uint64_t id = end_declare_one(worker, name, 100);
    envelope *reply = end_expect_reply(worker, id);
    assert_int_equal(reply->body_case, BODY(DECLARE_REPLY));
    if (ret_piece)
        *ret_piece = *reply->declare_reply->tensors[0]->pieces[0];
    uint32_t tensor = reply->declare_reply->tensors[0]->tensor;
    message_free(reply);
    return tensor;
}

struct moving moving_begin(struct rig *rig) { return moving_begin_with(rig, 1); }

struct moving moving_begin_with(struct rig *rig, uint32_t workers)
{
    struct moving m = {.rig = rig, .source = rig_aggregator(rig, 1)};
    m.worker = rig_join(rig, "resnet", 0, workers, &m.session, &m.job);
    m.tensor = (uint32_t)moving_declare(m.worker, "w", &m.piece);
    moving_passes(m.source, BODY(PLACE_REQUEST));
    m.target = rig_aggregator(rig, 1);
    m.asker = rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    return m;
}

void moving_order(struct moving *m)
{
    WIRE(MoveRequest) move = GRADPOOL__WIRE__MOVE_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    move.job = "resnet";
    move.lane = m->target->lanes[0];
    request.body_case = BODY(MOVE_REQUEST);
    request.move_request = &move;
    m->order = end_send(m->asker, &request);
}

envelope *moving_answer(struct moving *m, const char *stays)
{
    envelope *reply = end_expect_reply(m->asker, m->order);
    if (reply->body_case != BODY(MOVE_REPLY))
        fail_msg("refused: %s", reply->failure->text);
    if (!stays)
        assert_string_equal(reply->move_reply->stays, "");
    else if (!strstr(reply->move_reply->stays, stays))
        fail_msg("'%s' does not say '%s'", reply->move_reply->stays, stays);
    return reply;
}

envelope *moving_stop_at_install(struct moving *m)
{
    m->target->ignores = BODY(INSTALL_REQUEST);
    moving_order(m);
    return end_expect(m->target, BODY(INSTALL_REQUEST));
}

void moving_go_on(struct moving *m, envelope *install)
{
    m->target->ignores = 0;
    end_answer(m->target, install);
    message_free(install);
}

uint64_t moving_drain(struct moving *m, uint32_t lane, uint32_t aggregator, bool undo)
{
    WIRE(DrainLanesRequest) drain = GRADPOOL__WIRE__DRAIN_LANES_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    drain.lane = lane;
    drain.aggregator = aggregator;
    drain.undo = undo;
    request.body_case = BODY(DRAIN_LANES_REQUEST);
    request.drain_lanes_request = &drain;
    return m->order = end_send(m->asker, &request);
}
