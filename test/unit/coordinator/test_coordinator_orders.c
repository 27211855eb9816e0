/* Tests events during a move: tensors and jobs that end, restarts, a failing disk. Also tests
 * orders of operators: moving a task, moving a job, draining a lane. */
#include "test/unit/coordinator/moving_case.h"

#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/job/task.h"
#include "svc/coordinator/service.h"
#include "svc/reduce/update.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static int disk_error; /* error of every write; 0: writes succeed */

/* Replaces SQLite's write function: the linker prefers the program's symbol to the C library's. */
__attribute__((visibility("default"))) ssize_t pwrite64(int fd, const void *bytes, size_t count,
                                                        off64_t offset);
ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset)
{
    if (disk_error == 0)
        return syscall(SYS_pwrite64, fd, bytes, count, offset);
    errno = disk_error;
    return -1;
}

/* --- events during a move --- */

static void a_switch_that_is_not_stored_did_not_happen(void **state)
{
    struct moving m = moving_begin(*state);
    envelope *install = moving_stop_at_install(&m);
    disk_error = EIO;
    moving_go_on(&m, install);
    message_free(moving_answer(&m, "state.db"));
    disk_error = 0;
    moving_passes(m.source, BODY(THAW_REQUEST));
    moving_passes(m.target, BODY(DROP_REQUEST));
    end_expect_none(m.worker, BODY(ROUTE_CHANGE));
    moving_order(&m);
    message_free(moving_answer(&m, NULL));
}

static void a_tensor_undeclared_during_its_move_is_dropped_on_all_lanes(void **state)
{
    struct moving m = moving_begin(*state);
    /* the piece of the new tensor belongs to the same task, or is on the target */
    moving_declare(m.worker, "other", NULL);
    envelope *install = moving_stop_at_install(&m);
    end_undeclare(m.worker, m.tensor);
    envelope *drop = end_expect(m.source, BODY(DROP_REQUEST));
    assert_int_equal(drop->drop_request->pieces[0], m.piece.id);
    message_free(drop);
    moving_go_on(&m, install);
    message_free(moving_answer(&m, NULL));
    drop = end_expect(m.target, BODY(DROP_REQUEST));
    assert_int_equal(drop->drop_request->pieces[0], m.piece.id);
    message_free(drop);
}

static void a_job_that_ends_during_its_move_is_dropped_on_all_lanes(void **state)
{
    struct moving m = moving_begin(*state);
    envelope *install = moving_stop_at_install(&m);
    end_leave(m.worker);
    for (int i = 0; i < 2; i++) {
        envelope *drop = end_expect(i ? m.source : m.target, BODY(DROP_REQUEST));
        assert_int_equal(drop->drop_request->job_id, m.job);
        assert_int_equal(drop->drop_request->n_pieces, 0);
        message_free(drop);
    }
    moving_go_on(&m, install);
    envelope *reply = moving_answer(&m, NULL); /* none of the job's tasks remains on any lane */
    assert_int_equal(reply->move_reply->tasks, 0);
    message_free(reply);
}

static void a_declare_during_a_move_gets_the_former_routes(void **state)
{
    struct moving m = moving_begin(*state);
    WIRE(Piece) again, fresh;
    envelope *install = moving_stop_at_install(&m);
    moving_declare(m.worker, "w", &again);
    assert_int_equal(again.lane, m.source->lanes[0]);
    moving_declare(m.worker, "fresh", &fresh);
    assert_int_not_equal(fresh.task, m.piece.task); /* the existing task is moving */
    moving_go_on(&m, install);
    message_free(moving_answer(&m, NULL));
    envelope *change = end_expect(m.worker, BODY(ROUTE_CHANGE));
    assert_int_equal(change->route_change->n_tensors, 1);
    assert_int_equal(change->route_change->tensors[0]->pieces[0]->id, m.piece.id);
    message_free(change);
    moving_declare(m.worker, "w", &again);
    assert_int_equal(again.lane, m.target->lanes[0]);
}

/* --- restarts --- */

static WIRE(PieceHeld) held(const struct moving *m, const struct end *lane, uint32_t epoch)
{
    WIRE(PieceHeld) h = GRADPOOL__WIRE__PIECE_HELD__INIT;
    h.job_id = m->job;
    h.piece = m->piece.id;
    h.lane = lane->lanes[0];
    h.epoch = epoch;
    return h;
}

static void resume(struct moving *m)
{
    envelope request;
    WIRE(JoinRequest) join;
    m->worker = rig_connect(m->rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    join_request(&request, &join, "resnet", 0, 1);
    join.session = m->session;
    join.job_id = m->job;
    envelope *reply = end_ask(m->worker, &request);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    message_free(reply);
}

static void a_restart_before_the_switch_thaws_the_source(void **state)
{
    struct moving m = moving_begin(*state);
    message_free(moving_stop_at_install(&m));
    WIRE(PieceHeld) frozen = held(&m, m.source, 1), placed = held(&m, m.target, 2);
    struct end source = *m.source, target = *m.target;
    frozen.is_frozen = true;
    rig_crash(m.rig);
    rig_start(m.rig);
    m.target = rig_rejoin(m.rig, &target, 1, &placed);
    moving_passes(m.target, BODY(DROP_REQUEST));
    m.source = rig_rejoin(m.rig, &source, 1, &frozen);
    envelope *thaw = end_expect(m.source, BODY(THAW_REQUEST));
    assert_int_equal(thaw->thaw_request->pieces[0], m.piece.id);
    message_free(thaw);
    resume(&m);
    end_expect_none(m.worker, BODY(ROUTE_CHANGE));
}

static void a_restart_after_the_switch_finds_the_target_owner(void **state)
{
    struct moving m = moving_begin(*state);
    envelope *install = moving_stop_at_install(&m);
    m.source->ignores = BODY(DROP_REQUEST);
    moving_go_on(&m, install);
    /* the worker receives the routes again, because it may have missed the first message */
    moving_passes(m.worker, BODY(ROUTE_CHANGE));
    WIRE(PieceHeld) frozen = held(&m, m.source, 1), placed = held(&m, m.target, 2);
    struct end source = *m.source, target = *m.target;
    frozen.is_frozen = true;
    rig_crash(m.rig);
    rig_start(m.rig);
    m.source = rig_rejoin(m.rig, &source, 1, &frozen);
    moving_passes(m.source, BODY(DROP_REQUEST));
    end_expect_none(m.source, BODY(THAW_REQUEST));
    m.target = rig_rejoin(m.rig, &target, 1, &placed);
    end_expect_none(m.target, BODY(PLACE_REQUEST));
    resume(&m);
    envelope *change = end_expect(m.worker, BODY(ROUTE_CHANGE));
    assert_int_equal(change->route_change->tensors[0]->pieces[0]->lane, m.target->lanes[0]);
    assert_int_equal(change->route_change->tensors[0]->pieces[0]->epoch, 2);
    assert_int_equal(change->route_change->tensors[0]->pieces[0]->lost_epoch, 1);
    message_free(change);
}

/* --- orders --- */

static uint64_t order_move(struct moving *m, const char *job, uint32_t task, uint32_t lane)
{
    WIRE(MoveRequest) move = GRADPOOL__WIRE__MOVE_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    move.job = (char *)job;
    move.task = task;
    move.lane = lane;
    request.body_case = BODY(MOVE_REQUEST);
    request.move_request = &move;
    return m->order = end_send(m->asker, &request);
}

static void expect_refused(struct moving *m, uint64_t order, int code, const char *text)
{
    envelope *reply = end_expect_reply(m->asker, order);
    assert_int_equal(reply->body_case, BODY(FAILURE));
    if (!strstr(reply->failure->text, text))
        fail_msg("'%s' does not say '%s'", reply->failure->text, text);
    assert_int_equal(reply->failure->code, code);
    message_free(reply);
}

static void one_task_moves_and_the_others_stay(void **state)
{
    struct moving m = moving_begin(*state);
    moving_drain(&m, m.target->lanes[0], 0, false);
    message_free(moving_answer(&m, NULL));
    WIRE(Piece) other;
    uint64_t elements = 1 << 20; /* large enough for a separate task */
    const char *name = "other";
    envelope *reply = end_expect_reply(m.worker, end_declare(m.worker, 1, &name, &elements));
    other = *reply->declare_reply->tensors[0]->pieces[0];
    message_free(reply);
    assert_int_equal(other.lane, m.source->lanes[0]); /* the other lane is drained */
    assert_int_not_equal(other.task, m.piece.task);
    moving_drain(&m, m.target->lanes[0], 0, true);
    message_free(moving_answer(&m, NULL));
    order_move(&m, "", other.task, m.target->lanes[0]);
    reply = moving_answer(&m, NULL);
    assert_int_equal(reply->move_reply->tasks, 1);
    message_free(reply);
    envelope *drop = end_expect(m.source, BODY(DROP_REQUEST));
    assert_true(drop->drop_request->n_pieces > 0);
    assert_int_equal(drop->drop_request->pieces[0], other.id);
    message_free(drop);
}

static void impossible_orders_are_refused(void **state)
{
    struct moving m = moving_begin(*state);
    uint32_t lane = m.target->lanes[0];
    expect_refused(&m, order_move(&m, "resnet", 0, 99), -ENOENT,
                   "there is no lane 99; see gradpool status");
    expect_refused(&m, order_move(&m, "bert", 0, lane), -ENOENT,
                   "there is no job bert; see gradpool jobs");
    expect_refused(&m, order_move(&m, "", 77, lane), -ENOENT,
                   "there is no task 77; see gradpool explain JOB");
    expect_refused(&m, order_move(&m, "", 0, lane), -EINVAL, "the order names no job and no task");
    expect_refused(&m, moving_drain(&m, 99, 0, false), -ENOENT,
                   "there is no lane 99; see gradpool status");
    expect_refused(&m, moving_drain(&m, 0, 99, false), -ENOENT,
                   "there is no aggregator 99; see gradpool status");
    lane_find(m.rig->coordinator->service, lane)->use = LANE_CLOSING;
    expect_refused(&m, order_move(&m, "resnet", 0, lane), -EBUSY,
                   " is being emptied: choose another lane, or try again");
    lane_find(m.rig->coordinator->service, lane)->use = LANE_OPEN;
    moving_drain(&m, lane, 0, false);
    message_free(moving_answer(&m, NULL));
    expect_refused(&m, order_move(&m, "resnet", 0, lane), -EINVAL,
                   "is drained: end the drain first (gradpool drain --undo)");
}

static void a_number_that_is_also_a_jobs_name_moves_no_task(void **state)
{
    struct moving m = moving_begin(*state);
    char number[16], both[64];
    uint32_t task = m.piece.task, lane = m.target->lanes[0];
    snprintf(number, sizeof number, "%u", task);
    snprintf(both, sizeof both, "write `job:%u' for all tasks of the job, or `task:%u'", task,
             task);
    struct end *named = rig_join(m.rig, number, 0, 1, NULL, NULL);
    expect_refused(&m, order_move(&m, number, task, lane), -EINVAL, both);
    order_move(&m, number, 0, lane);
    envelope *reply = moving_answer(&m, NULL); /* at this point the job has no tasks */
    assert_int_equal(reply->move_reply->tasks, 0);
    message_free(reply);
    end_leave(named);
    order_move(&m, number, task, lane);
    reply = moving_answer(&m, NULL);
    assert_int_equal(reply->move_reply->tasks, 1);
    message_free(reply);
}

static void two_orders_for_one_job_run_one_after_the_other(void **state)
{
    struct moving m = moving_begin(*state);
    uint64_t first = order_move(&m, "resnet", 0, m.target->lanes[0]);
    uint64_t second = order_move(&m, "resnet", 0, m.source->lanes[0]);
    m.order = first;
    message_free(moving_answer(&m, NULL));
    m.order = second;
    message_free(moving_answer(&m, NULL));
}

static void two_jobs_move_at_once(void **state)
{
    struct moving m = moving_begin(*state);
    struct end *bert = rig_join(m.rig, "bert", 0, 1, NULL, NULL);
    WIRE(Piece) piece;
    moving_declare(bert, "w", &piece);
    envelope *install = moving_stop_at_install(&m);
    uint64_t first = m.order;
    uint32_t to = piece.lane == m.source->lanes[0] ? m.target->lanes[0] : m.source->lanes[0];
    m.target->ignores = 0;
    order_move(&m, "bert", 0, to);
    message_free(moving_answer(&m, NULL)); /* the other task is still moving */
    m.order = first;
    moving_go_on(&m, install);
    message_free(moving_answer(&m, NULL));
}

static void an_undeclared_piece_does_not_delay_a_release(void **state)
{
    struct moving m = moving_begin(*state);
    m.source->refuses = BODY(RELEASE_REQUEST);
    /* a lane answers with this error if a piece was undeclared during the release */
    m.source->refusal = -ECANCELED;
    moving_order(&m);
    moving_passes(m.source, BODY(RELEASE_REQUEST));
    m.source->refuses = 0;
    envelope *reply = moving_answer(&m, NULL);
    assert_int_equal(reply->move_reply->tasks, 1);
    message_free(reply);
}

static void a_batch_is_as_much_as_lanes_keep(void **state)
{
    struct task tasks[] = {{.state_bytes = 3 << 20},
                           {.state_bytes = 5 << 20},
                           {.state_bytes = 1},
                           {.state_bytes = 9 << 20},
                           {.state_bytes = 0}};
    (void)state;
    assert_int_equal(tasks_batch(tasks, 5), 2);
    assert_int_equal(tasks_batch(tasks + 2, 3), 1);
    assert_int_equal(tasks_batch(tasks + 3, 2), 1);
    assert_int_equal(tasks_batch(tasks + 4, 1), 1);
    assert_int_equal(tasks_batch(tasks, 0), 0);
}

static void a_batch_fits_one_round_of_its_owner(void **state)
{
    struct task tasks[] = {{.bytes = 30 << 20},
                           {.bytes = 2 << 20, .state_bytes = 2 << 20},
                           {.bytes = 1},
                           {.bytes = 40 << 20},
                           {.bytes = 1}};
    (void)state;
    assert_int_equal(tasks_batch(tasks, 5), 2);
    assert_int_equal(tasks_batch(tasks + 2, 3), 1);
    assert_int_equal(tasks_batch(tasks + 3, 2), 1);
}

static bool is_any(const struct tensor *tensor, const struct piece *piece, const void *context)
{
    return true;
}

static void the_memory_of_a_task_includes_moments_and_results(void **state)
{
    const struct {
        struct terms terms;
        uint64_t times;
    } kinds[] = {{{0}, 0},
                 {{.rule = UPDATE_SGD}, 1},
                 {{.rule = UPDATE_ADAM}, 3},
                 {{.quorum = QUORUM_FIRST, .bound = 1}, 1},
                 {{.quorum = QUORUM_ANY}, 1}};
    struct moving m = moving_begin(*state);
    struct job *job = jobs_find_id(m.rig->coordinator->service, m.job);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct task *tasks;
        size_t count;
        job->tensors[0]->terms = kinds[i].terms;
        assert_int_equal(tasks_list(job, is_any, NULL, &tasks, &count), 0);
        assert_int_equal(count, 1);
        assert_int_equal(tasks[0].state_bytes, kinds[i].times * tasks[0].bytes);
        free(tasks);
    }
    job->tensors[0]->terms = (struct terms){0};
}

static void a_lane_released_from_a_drain_opens_within_lanes_max_only(void **state)
{
    struct rig *rig = *state;
    rig->options.scales = true;
    rig->options.lanes_max = 1;
    rig->options.policy = "shared";
    rig_start_afresh(rig);
    struct moving m = moving_begin(rig);
    struct service *s = rig->coordinator->service;
    const struct lane *source = lane_find(s, m.source->lanes[0]),
                      *target = lane_find(s, m.target->lanes[0]);
    assert_int_equal(target->use, LANE_PARKED);
    moving_drain(&m, source->id, 0, false);
    message_free(moving_answer(&m, NULL));
    assert_int_equal(target->use, LANE_OPEN);
    moving_drain(&m, source->id, 0, true);
    message_free(moving_answer(&m, NULL));
    assert_int_equal(source->use, LANE_PARKED);
    assert_int_equal(target->use, LANE_OPEN);
}

static void a_job_that_fits_nowhere_else_is_named_and_stays(void **state)
{
    struct moving m = moving_begin(*state);
    moving_drain(&m, m.target->lanes[0], 0, false);
    message_free(moving_answer(&m, NULL));
    moving_drain(&m, m.source->lanes[0], 0, false);
    envelope *reply = moving_answer(&m, "job resnet");
    assert_int_equal(reply->move_reply->undone, 1);
    if (!strstr(reply->move_reply->stays, "all lanes that are up are drained; `gradpool drain"))
        fail_msg("%s", reply->move_reply->stays);
    message_free(reply);
    end_expect_none(m.source, BODY(RELEASE_REQUEST));
    WIRE(Piece) more;
    /* the first drain continues, the second drain is undone */
    moving_declare(m.worker, "more", &more);
    assert_int_equal(more.lane, m.source->lanes[0]);
    assert_non_null(strstr(rig_last_event(*state, "undrain"), " is undone: "));
}

static void a_failed_drain_leaves_earlier_drained_lanes_drained(void **state)
{
    struct rig *rig = *state;
    struct end *both = rig_aggregator(rig, 2), *worker = rig_join(rig, "resnet", 0, 1, NULL, NULL);
    struct moving m = {.rig = rig, .source = both, .worker = worker};
    struct service *s = rig->coordinator->service;
    moving_declare(worker, "w", &m.piece);
    uint32_t empty = both->lanes[both->lanes[0] == m.piece.lane];
    m.asker = rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    moving_drain(&m, empty, 0, false);
    message_free(moving_answer(&m, NULL));
    moving_drain(&m, 0, both->aggregator, false);
    envelope *reply = moving_answer(&m, "job resnet");
    assert_int_equal(reply->move_reply->undone, 1);
    message_free(reply);
    assert_int_equal(lane_find(s, empty)->use, LANE_WITHHELD);
    assert_int_equal(lane_find(s, m.piece.lane)->use, LANE_OPEN);
}

static void lost_tasks_move_to_a_drained_lane_if_no_other_runs(void **state)
{
    struct rig *rig = *state;
    struct end *first = rig_local_aggregator(rig, 1, "");
    struct moving m = {.worker = rig_join(rig, "resnet", 0, 1, NULL, &m.job)};
    WIRE(Piece) piece;
    moving_declare(m.worker, "w", &piece);
    struct end *second = rig_aggregator(rig, 1);
    struct lane *drained = lane_find(rig->coordinator->service, second->lanes[0]);
    m.asker = rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    moving_drain(&m, drained->id, 0, false);
    message_free(moving_answer(&m, NULL));
    rig_kill(rig, first->process);
    envelope *change = end_expect(m.worker, BODY(ROUTE_CHANGE));
    assert_int_equal(change->route_change->tensors[0]->pieces[0]->lane, drained->id);
    message_free(change);
    assert_int_equal(drained->use, LANE_WITHHELD); /* new jobs use other lanes */
}

static int teardown(void **state)
{
    disk_error = 0;
    return rig_teardown(state);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_switch_that_is_not_stored_did_not_happen),
        CASE(a_tensor_undeclared_during_its_move_is_dropped_on_all_lanes),
        CASE(a_job_that_ends_during_its_move_is_dropped_on_all_lanes),
        CASE(a_declare_during_a_move_gets_the_former_routes),
        CASE(a_restart_before_the_switch_thaws_the_source),
        CASE(a_restart_after_the_switch_finds_the_target_owner),
        CASE(one_task_moves_and_the_others_stay),
        CASE(impossible_orders_are_refused),
        CASE(a_number_that_is_also_a_jobs_name_moves_no_task),
        CASE(two_orders_for_one_job_run_one_after_the_other),
        CASE(two_jobs_move_at_once),
        CASE(an_undeclared_piece_does_not_delay_a_release),
        CASE(a_batch_is_as_much_as_lanes_keep),
        CASE(a_batch_fits_one_round_of_its_owner),
        CASE(the_memory_of_a_task_includes_moments_and_results),
        CASE(a_lane_released_from_a_drain_opens_within_lanes_max_only),
        CASE(a_job_that_fits_nowhere_else_is_named_and_stays),
        CASE(a_failed_drain_leaves_earlier_drained_lanes_drained),
        CASE(lost_tasks_move_to_a_drained_lane_if_no_other_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
