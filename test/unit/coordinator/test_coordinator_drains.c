/* Tests lanes that an operator drains and returns to use: tasks that move, tasks that stay, and
 * changes of lanes during a drain (K21). */
#include "test/unit/coordinator/moving_case.h"

#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/service.h"
#include "svc/reduce/update.h"

#include <stdio.h>

static void a_drained_lane_gets_no_task_until_its_drain_is_undone(void **state)
{
    struct moving m = moving_begin(*state);
    WIRE(Piece) piece;
    moving_drain(&m, 0, m.source->aggregator, false);
    envelope *reply = moving_answer(&m, NULL);
    assert_int_equal(reply->move_reply->tasks, 1);
    message_free(reply);
    for (int i = 0; i < 8; i++) {
        char name[] = {(char)('a' + i), 0};
        moving_declare(m.worker, name, &piece);
        assert_int_equal(piece.lane, m.target->lanes[0]);
    }
    moving_drain(&m, 0, m.source->aggregator, true);
    message_free(moving_answer(&m, NULL));
    struct end *bert = rig_join(m.rig, "bert", 0, 1, NULL, NULL);
    moving_declare(bert, "w", &piece);
    assert_int_equal(piece.lane, m.source->lanes[0]); /* the lane without another job */
    kept_log_expect("open lanes, the first for lane 2");
    kept_log_expect("their lane is drained");
}

static void a_drain_waits_for_tasks_that_move_to_the_lane(void **state)
{
    struct moving m = moving_begin(*state);
    envelope *install = moving_stop_at_install(&m);
    uint64_t move = m.order;
    uint64_t drain = moving_drain(&m, m.target->lanes[0], 0, false);
    end_expect_none(m.asker, BODY(MOVE_REPLY));
    moving_go_on(&m, install);
    m.order = move;
    message_free(moving_answer(&m, NULL));
    m.order = drain;
    envelope *reply = moving_answer(&m, NULL);
    assert_int_equal(reply->move_reply->tasks, 1);
    message_free(reply);
    for (int i = 0; i < 2; i++) {
        envelope *change = end_expect(m.worker, BODY(ROUTE_CHANGE));
        assert_int_equal(change->route_change->tensors[0]->pieces[0]->lane,
                         (i ? m.source : m.target)->lanes[0]);
        message_free(change);
    }
    kept_log_expect("its tasks are still moving to a lane that is being emptied");
}

static void a_drain_ends_for_a_lane_that_is_given_back(void **state)
{
    enum { TASKS = 12, ELEMENTS = 1 << 20 }; /* each task has 4 MiB; a batch has 32 MiB */
    struct moving m = moving_begin(*state);
    char names[TASKS][4], text[64];
    const char *name[TASKS];
    uint64_t elements[TASKS];
    uint32_t left = m.source->lanes[0];
    moving_drain(&m, m.target->lanes[0], 0, false); /* moves all tasks to the other lane */
    message_free(moving_answer(&m, NULL));
    for (int i = 0; i < TASKS; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        name[i] = names[i];
        elements[i] = ELEMENTS;
    }
    message_free(end_expect_reply(m.worker, end_declare(m.worker, TASKS, name, elements)));
    moving_drain(&m, m.target->lanes[0], 0, true);
    envelope *reply = moving_answer(&m, NULL);
    assert_int_equal(reply->move_reply->lanes, 1);
    message_free(reply);

    m.target->ignores = BODY(INSTALL_REQUEST);
    uint64_t drain = moving_drain(&m, 0, m.source->aggregator, false);
    envelope *install = end_expect(m.target, BODY(INSTALL_REQUEST));
    moving_drain(&m, left, 0, true);
    reply = moving_answer(&m, NULL);
    assert_int_equal(reply->move_reply->lanes, 1);
    message_free(reply);
    moving_go_on(&m, install);
    m.order = drain;
    snprintf(text, sizeof text, "the tasks left on lane %u, whose drain was undone", left);
    reply = moving_answer(&m, text);
    assert_in_range(reply->move_reply->tasks, 1, TASKS / 2 + 2); /* exactly one batch */
    assert_int_equal(reply->move_reply->lanes, 1);
    message_free(reply);
    moving_drain(&m, left, 0, true);
    reply = moving_answer(&m, NULL);
    assert_int_equal(reply->move_reply->lanes, 0);
    message_free(reply);
}

static bool has_come(const struct end *e, int body)
{
    for (size_t i = 0; i < e->inbox_count; i++)
        if ((int)e->inbox[i]->body_case == body)
            return true;
    return false;
}

/* Declares tensors of 4 MiB with Adam's state. Each tensor moves separately. */
static void declare_with_state(struct moving *m, uint32_t count)
{
    struct job *job = jobs_find_id(m->rig->coordinator->service, m->job);
    for (uint32_t i = 0; i < count; i++) {
        const char name[] = {(char)('a' + i), 0}, *names = name;
        uint64_t elements = 1 << 20;
        message_free(end_expect_reply(m->worker, end_declare(m->worker, 1, &names, &elements)));
    }
    for (size_t i = 0; i < job->tensors_count; i++)
        job->tensors[i]->terms.rule = UPDATE_ADAM;
}

static void a_target_of_a_later_batch_ends_before_the_batch(void **state)
{
    enum { TASKS = 4 };
    struct moving m = moving_begin(*state);
    struct end *third = rig_aggregator(m.rig, 1), *both[] = {m.target, third};
    for (int undo = 0; undo < 2; undo++) {
        for (int i = 0; i < 2; i++) {
            moving_drain(&m, both[i]->lanes[0], 0, undo);
            message_free(moving_answer(&m, NULL));
        }
        if (!undo)
            declare_with_state(&m, TASKS);
    }
    m.target->ignores = third->ignores = BODY(INSTALL_REQUEST);
    moving_drain(&m, m.source->lanes[0], 0, false);
    while (!has_come(m.target, BODY(INSTALL_REQUEST)) && !has_come(third, BODY(INSTALL_REQUEST)))
        rig_step_within(m.rig, NS_PER_MS);
    struct end *other = has_come(third, BODY(INSTALL_REQUEST)) ? m.target : third;
    m.target = other == third ? m.target : third;
    /* a stopping aggregator is removed at once */
    lane_find(m.rig->coordinator->service, other->lanes[0])->aggregator->is_stopping = true;
    end_say_goodbye(other);
    rig_settle(m.rig);
    assert_null(lane_find(m.rig->coordinator->service, other->lanes[0]));
    moving_go_on(&m, end_expect(m.target, BODY(INSTALL_REQUEST)));
    envelope *reply = moving_answer(&m, NULL);
    assert_int_equal(reply->move_reply->tasks, TASKS + 1);
    message_free(reply);
}

static void a_drain_leaves_other_lanes_that_are_drained_alone(void **state)
{
    struct moving m = moving_begin(*state);
    struct end *bert = rig_join(m.rig, "bert", 0, 1, NULL, NULL), *free_lane;
    WIRE(Piece) piece;
    moving_declare(bert, "w", &piece);
    assert_int_equal(piece.lane, m.target->lanes[0]);
    free_lane = rig_aggregator(m.rig, 1);
    m.target->ignores = BODY(RELEASE_REQUEST);
    uint64_t other = moving_drain(&m, m.target->lanes[0], 0, false);
    envelope *release = end_expect(m.target, BODY(RELEASE_REQUEST));
    moving_drain(&m, m.source->lanes[0], 0, false);
    envelope *reply = moving_answer(&m, NULL); /* the answer does not wait for bert's task */
    assert_int_equal(reply->move_reply->tasks, 1);
    message_free(reply);
    moving_passes(free_lane, BODY(INSTALL_REQUEST));
    m.target->ignores = 0;
    end_answer(m.target, release);
    message_free(release);
    m.order = other;
    message_free(moving_answer(&m, NULL));
}

static void an_empty_lane_that_is_released_during_another_drain_is_not_named(void **state)
{
    struct rig *rig = *state;
    struct end *both = rig_aggregator(rig, 2), *worker = rig_join(rig, "resnet", 0, 1, NULL, NULL);
    struct moving m = {.rig = rig, .source = both, .worker = worker};
    moving_declare(worker, "w", &m.piece);
    uint32_t empty = both->lanes[both->lanes[0] == m.piece.lane];
    rig_aggregator(rig, 1);
    m.asker = rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    both->ignores = BODY(RELEASE_REQUEST);
    uint64_t drain = moving_drain(&m, 0, both->aggregator, false);
    envelope *release = end_expect(both, BODY(RELEASE_REQUEST));
    moving_drain(&m, empty, 0, true);
    message_free(moving_answer(&m, NULL));
    both->ignores = 0;
    end_answer(both, release);
    message_free(release);
    m.order = drain;
    message_free(moving_answer(&m, NULL));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_drained_lane_gets_no_task_until_its_drain_is_undone),
        CASE(a_drain_waits_for_tasks_that_move_to_the_lane),
        CASE(a_drain_ends_for_a_lane_that_is_given_back),
        CASE(a_target_of_a_later_batch_ends_before_the_batch),
        CASE(a_drain_leaves_other_lanes_that_are_drained_alone),
        CASE(an_empty_lane_that_is_released_during_another_drain_is_not_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
