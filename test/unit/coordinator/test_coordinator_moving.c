/* Tests the messages that lanes and workers receive when a task moves. Also tests the state after a
 * refusal, a missing answer or a loss. */
#include "test/unit/coordinator/moving_case.h"

#include "svc/base/clock.h"

#include <errno.h>
#include <string.h>

static const int steps[] = {BODY(PLACE_REQUEST), BODY(RELEASE_REQUEST), BODY(STATE_REQUEST),
                            BODY(STATE_PUT), BODY(INSTALL_REQUEST)};
#define STEPS (sizeof steps / sizeof *steps)

static bool is_of_source(int step)
{
    return step == BODY(RELEASE_REQUEST) || step == BODY(STATE_REQUEST);
}

static struct end *asked(struct moving *m, int step)
{
    return is_of_source(step) ? m->source : m->target;
}

static void expect_route(struct moving *m, uint32_t lane, uint32_t epoch, bool is_released)
{
    envelope *change = end_expect(m->worker, BODY(ROUTE_CHANGE));
    assert_int_equal(change->route_change->n_tensors, 1);
    assert_int_equal(change->route_change->tensors[0]->n_pieces, 1);
    const WIRE(Piece) *piece = change->route_change->tensors[0]->pieces[0];
    assert_int_equal(piece->id, m->piece.id);
    assert_int_equal(piece->task, m->piece.task);
    assert_int_equal(piece->lane, lane);
    assert_int_equal(piece->epoch, epoch);
    assert_int_equal(piece->lost_epoch < epoch, is_released);
    message_free(change);
}

/* Waits for a DropRequest of this number of pieces. `pieces` 0: the whole job. */
static void expect_drop(struct moving *m, struct end *lane, size_t pieces)
{
    envelope *drop = end_expect(lane, BODY(DROP_REQUEST));
    assert_int_equal(drop->drop_request->job_id, m->job);
    assert_int_equal(drop->drop_request->lane, lane->lanes[0]);
    assert_int_equal(drop->drop_request->n_pieces, pieces);
    message_free(drop);
}

static void expect_thaw(struct moving *m)
{
    envelope *thaw = end_expect(m->source, BODY(THAW_REQUEST));
    assert_int_equal(thaw->thaw_request->job_id, m->job);
    assert_int_equal(thaw->thaw_request->lane, m->source->lanes[0]);
    assert_int_equal(thaw->thaw_request->n_pieces, 1);
    assert_int_equal(thaw->thaw_request->pieces[0], m->piece.id);
    message_free(thaw);
}

static void expect_moved(struct moving *m, uint32_t epoch)
{
    envelope *reply = moving_answer(m, NULL);
    assert_int_equal(reply->move_reply->tasks, 1);
    message_free(reply);
    expect_route(m, m->target->lanes[0], epoch, true);
    expect_drop(m, m->source, 0);
    end_expect_none(m->source, BODY(THAW_REQUEST));
    end_expect_none(m->target, BODY(DROP_REQUEST));
}

/* Checks that the next move succeeds normally. */
static void expect_it_can_move_now(struct moving *m, uint32_t epoch)
{
    moving_order(m);
    expect_moved(m, epoch);
}

/* --- successful moves --- */

static void a_task_moves_by_place_release_install_then_the_switch_then_a_drop(void **state)
{
    struct moving m = moving_begin(*state);
    m.source->answers = m.target->answers = false;
    moving_order(&m);
    envelope *place = end_expect(m.target, BODY(PLACE_REQUEST));
    assert_true(place->place_request->recovering);
    assert_int_equal(place->place_request->epoch, 2);
    assert_int_equal(place->place_request->n_pieces, 1);
    assert_int_equal(place->place_request->pieces[0]->piece, m.piece.id);
    assert_int_equal(place->place_request->pieces[0]->task, m.piece.task);
    end_expect_none(m.source, BODY(RELEASE_REQUEST)); /* the target has not reserved memory yet */
    end_answer(m.target, place);
    envelope *release = end_expect(m.source, BODY(RELEASE_REQUEST));
    assert_int_equal(release->release_request->pieces[0], m.piece.id);
    end_expect_none(m.target, BODY(INSTALL_REQUEST)); /* a round is still open */
    end_answer(m.source, release);
    envelope *install = end_expect(m.target, BODY(INSTALL_REQUEST));
    assert_int_equal(install->install_request->pieces[0], m.piece.id);
    assert_int_equal(install->install_request->rounds[0], RIG_ROUND);
    end_expect_none(m.worker, BODY(ROUTE_CHANGE)); /* the source still owns the task */
    end_answer(m.target, install);
    expect_route(&m, m.target->lanes[0], 2, true);
    envelope *drop = end_expect(m.source, BODY(DROP_REQUEST));
    /* the whole job is dropped: none of its pieces remains */
    assert_int_equal(drop->drop_request->n_pieces, 0);
    end_expect_none(m.asker, BODY(MOVE_REPLY));
    end_answer(m.source, drop);
    envelope *progress = end_expect(m.asker, BODY(MOVE_PROGRESS));
    assert_int_equal(progress->id, 0);
    assert_int_equal(progress->move_progress->tasks, 1);
    message_free(progress);
    envelope *reply = moving_answer(&m, NULL);
    assert_int_equal(reply->move_reply->tasks, 1);
    assert_int_equal(reply->move_reply->bytes, 0);
    assert_true(reply->move_reply->longest_ns > 0);
    message_free(place);
    message_free(release);
    message_free(install);
    message_free(drop);
    message_free(reply);
}

static envelope *ask_for_ticket(struct end *worker, uint32_t lane)
{
    WIRE(TicketRequest) ticket = GRADPOOL__WIRE__TICKET_REQUEST__INIT;
    ticket.lane = lane;
    return end_ask(worker, &ENVELOPE(0, TICKET_REQUEST, ticket_request, &ticket));
}

static void workers_connect_to_the_target_before_the_source_releases_the_task(void **state)
{
    struct moving m = moving_begin(*state);
    envelope *reply = ask_for_ticket(m.worker, m.target->lanes[0]);
    assert_int_equal(reply->failure->code, -ENOENT);
    message_free(reply);
    m.source->answers = false;
    moving_order(&m);
    envelope *place = end_expect(m.target, BODY(PLACE_REQUEST));
    assert_true(place->place_request->awaits_workers);
    message_free(place);
    envelope *ahead = end_expect(m.worker, BODY(LANE_AHEAD));
    assert_int_equal(ahead->lane_ahead->lane, m.target->lanes[0]);
    message_free(ahead);
    envelope *release = end_expect(m.source, BODY(RELEASE_REQUEST));
    reply = ask_for_ticket(m.worker, m.target->lanes[0]);
    assert_int_equal(reply->body_case, BODY(TICKET_REPLY));
    message_free(reply);
    end_expect_none(m.worker, BODY(ROUTE_CHANGE));
    m.source->answers = true;
    end_answer(m.source, release);
    message_free(release);
    expect_moved(&m, 2);
}

static void state_travels_part_by_part_before_the_switch(void **state)
{
    struct moving m = moving_begin(*state);
    m.source->state_bytes = 9 * RIG_STATE_BYTES_MAX + 5000;
    moving_order(&m);
    uint64_t offset = 0;
    while (offset < m.source->state_bytes) {
        envelope *put = end_expect(m.target, BODY(STATE_PUT));
        assert_int_equal(put->state_put->piece, m.piece.id);
        assert_int_equal(put->state_put->offset, offset);
        for (size_t i = 0; i < put->state_put->data.len; i++)
            assert_int_equal(put->state_put->data.data[i], (uint8_t)((offset + i) >> 10));
        offset += put->state_put->data.len;
        message_free(put);
    }
    assert_int_equal(offset, m.source->state_bytes);
    envelope *reply = moving_answer(&m, NULL);
    assert_int_equal(reply->move_reply->bytes, m.source->state_bytes);
    message_free(reply);
    expect_route(&m, m.target->lanes[0], 2, true);
}

static void a_task_already_on_the_target_does_not_move(void **state)
{
    struct moving m = moving_begin(*state);
    struct end *target = m.target;
    m.target = m.source;
    moving_order(&m);
    envelope *reply = moving_answer(&m, NULL);
    assert_int_equal(reply->move_reply->tasks, 0);
    message_free(reply);
    end_expect_none(m.source, BODY(RELEASE_REQUEST));
    end_expect_none(target, BODY(PLACE_REQUEST));
}

static void a_moved_task_may_move_back(void **state)
{
    struct moving m = moving_begin(*state);
    for (uint32_t epoch = 2; epoch < 12; epoch++) {
        moving_order(&m);
        expect_moved(&m, epoch);
        struct end *lane = m.source;
        m.source = m.target;
        m.target = lane;
    }
}

/* --- refusals --- */

static void a_refused_step_leaves_the_task_on_its_lane(void **state)
{
    struct moving m = moving_begin(*state);
    m.source->state_bytes = 1000;
    for (size_t i = 0; i < STEPS; i++) {
        asked(&m, steps[i])->refuses = steps[i];
        moving_order(&m);
        message_free(moving_answer(&m, "it does not want to"));
        expect_drop(&m, m.target, 0);
        if (i > 0)
            expect_thaw(&m);
        else
            end_expect_none(m.source, BODY(THAW_REQUEST)); /* the lane has not frozen the task */
        end_expect_none(m.worker, BODY(ROUTE_CHANGE));
        end_expect_none(m.source, BODY(DROP_REQUEST));
        asked(&m, steps[i])->refuses = 0;
    }
    expect_it_can_move_now(&m, 2 + STEPS); /* each epoch is used only once */
}

static void the_wait_for_a_silent_lane_ends(void **state)
{
    struct moving m = moving_begin(*state);
    m.source->ignores = BODY(RELEASE_REQUEST);
    moving_order(&m);
    message_free(moving_answer(&m, "did not answer in time"));
    expect_thaw(&m);
    expect_drop(&m, m.target, 0);
    end_expect_none(m.worker, BODY(ROUTE_CHANGE));
    m.source->ignores = 0;
    expect_it_can_move_now(&m, 3);
}

static void a_drop_that_is_not_answered_is_sent_again(void **state)
{
    struct moving m = moving_begin(*state);
    m.source->ignores = BODY(DROP_REQUEST);
    moving_order(&m);
    expect_route(&m, m.target->lanes[0], 2, true);
    expect_drop(&m, m.source, 0);
    m.source->ignores = 0;
    message_free(moving_answer(&m, NULL));
    expect_drop(&m, m.source, 0);
    kept_log_expect("the source lane of a migration did not drop the moved pieces: ");
}

/* --- losses --- */

/* Stops the move at this step: the message remains unanswered. The caller frees it. */
static envelope *stop_at(struct moving *m, int step)
{
    asked(m, step)->ignores = step;
    m->source->state_bytes = 1000;
    moving_order(m);
    return end_expect(asked(m, step), step);
}

static void a_worker_that_leaves_before_the_switch_is_not_forgotten_by_it(void **state)
{
    struct moving m = moving_begin_with(*state, 2);
    uint64_t session;
    uint32_t job;
    struct end *other = rig_join(m.rig, "resnet", 1, 2, &session, &job);
    message_free(stop_at(&m, BODY(RELEASE_REQUEST)));
    m.source->ignores = 0;
    end_leave(other);
    expect_thaw(&m);
    expect_drop(&m, m.target, 0);
    expect_moved(&m, 3); /* the order is executed nevertheless */
}

static void a_target_that_is_lost_leaves_the_task_with_the_source(void **state)
{
    for (size_t i = 0; i < STEPS; i++) {
        struct moving m = moving_begin(*state);
        message_free(stop_at(&m, steps[i]));
        end_say_goodbye(m.target);
        message_free(moving_answer(&m, "resnet: lane 2 is gone"));
        if (i > 0)
            expect_thaw(&m);
        end_expect_none(m.worker, BODY(ROUTE_CHANGE));
        end_expect_none(m.source, BODY(DROP_REQUEST));
        rig_start_afresh(m.rig);
    }
}

static void tasks_of_a_lost_source_get_other_lanes(void **state)
{
    for (size_t i = 0; i < STEPS; i++) {
        struct moving m = moving_begin(*state);
        message_free(stop_at(&m, steps[i]));
        m.target->ignores = 0;
        end_say_goodbye(m.source);
        message_free(moving_answer(&m, NULL)); /* the task is already on the ordered lane */
        expect_drop(&m, m.target, 0);
        /* the lost source has not released the task */
        expect_route(&m, m.target->lanes[0], 3, false);
        rig_start_afresh(m.rig);
    }
}

static void a_source_that_is_lost_after_the_switch_changes_nothing(void **state)
{
    struct moving m = moving_begin(*state);
    envelope *install = stop_at(&m, BODY(INSTALL_REQUEST));
    m.source->ignores = BODY(DROP_REQUEST);
    end_answer(m.target, install);
    message_free(install);
    expect_route(&m, m.target->lanes[0], 2, true);
    end_say_goodbye(m.source);
    message_free(moving_answer(&m, NULL));
    end_expect_none(m.worker, BODY(ROUTE_CHANGE));
    kept_log_expect("the aggregator is gone");
}

static WIRE(PieceHeld) held(const struct moving *m, const struct end *lane, uint32_t epoch)
{
    WIRE(PieceHeld) h = GRADPOOL__WIRE__PIECE_HELD__INIT;
    h.job_id = m->job;
    h.piece = m->piece.id;
    h.lane = lane->lanes[0];
    h.epoch = epoch;
    return h;
}

static void a_returned_aggregator_learns_the_state_of_its_pieces(void **state)
{
    struct moving m = moving_begin(*state);
    message_free(stop_at(&m, BODY(INSTALL_REQUEST)));
    WIRE(PieceHeld) frozen = held(&m, m.source, 1), placed = held(&m, m.target, 2);
    struct end source = *m.source, target = *m.target;
    frozen.is_frozen = true;
    end_close(m.source);
    expect_drop(&m, m.target, 0);
    end_close(m.target); /* the coordinator has not sent the drop yet */
    m.target = rig_rejoin(m.rig, &target, 1, &placed);
    expect_drop(&m, m.target, 1);
    m.source = rig_rejoin(m.rig, &source, 1, &frozen);
    expect_thaw(&m);
    expect_moved(&m, 3); /* the order is still carried out */
    kept_log_expect("the control connection of an aggregator has ended");
    kept_log_expect(" has lost its control connection");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_task_moves_by_place_release_install_then_the_switch_then_a_drop),
        CASE(workers_connect_to_the_target_before_the_source_releases_the_task),
        CASE(state_travels_part_by_part_before_the_switch),
        CASE(a_task_already_on_the_target_does_not_move),
        CASE(a_moved_task_may_move_back),
        CASE(a_refused_step_leaves_the_task_on_its_lane),
        CASE(the_wait_for_a_silent_lane_ends),
        CASE(a_drop_that_is_not_answered_is_sent_again),
        CASE(a_worker_that_leaves_before_the_switch_is_not_forgotten_by_it),
        CASE(a_target_that_is_lost_leaves_the_task_with_the_source),
        CASE(tasks_of_a_lost_source_get_other_lanes),
        CASE(a_source_that_is_lost_after_the_switch_changes_nothing),
        CASE(a_returned_aggregator_learns_the_state_of_its_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
