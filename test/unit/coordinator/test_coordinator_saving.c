/* Tests messages to a worker, lanes and an operator during a snapshot of a job (K47, K51). One rank
 * is held at the end of an iteration. All tensors with update rules become idle, and their states
 * are read. After success and after failure the tensors continue to train. */
#include "test/unit/coordinator/coordinator_rig.h"

#include "svc/coordinator/service.h"
#include "svc/reduce/update.h"

#include <errno.h>
#include <string.h>

#define ELEMENTS 1000
#define BYTES (ELEMENTS * sizeof(float))
#define STATE(name) GRADPOOL__WIRE__HOLD_STATE__HOLD_##name
#define HEAD 100 /* number of bytes of a piece's state in front of its arrays */

/* Tensor "b" with SGD on one lane, tensor "w" with Adam on another. */
struct saving_case {
    struct rig *rig;
    struct end *lanes[2], *worker, *asker;
    struct job *job;
    uint64_t request, snapshot, hold;
};

static struct end *end_of(struct saving_case *c, const char *tensor)
{
    const struct lane *lane = jobs_tensor_named(c->job, tensor)->pieces[0].lane;
    return c->lanes[0]->lanes[0] == lane->id ? c->lanes[0] : c->lanes[1];
}

static void set_rule(struct saving_case *c, const char *tensor, uint8_t rule, uint64_t steps)
{
    jobs_tensor_named(c->job, tensor)->terms.rule = rule;
    struct end *lane = end_of(c, tensor);
    lane->state_bytes = HEAD + BYTES * (1 + (uint64_t)update_moments(rule));
    lane->steps = steps + 1;
}

static struct saving_case begin(struct rig *rig)
{
    static const char *const names[] = {"w", "b"};
    static const uint64_t elements[] = {ELEMENTS, ELEMENTS};
    struct saving_case c = {.rig = rig};
    uint64_t session;
    uint32_t job;
    rig->options.policy = "round-robin";
    rig_start_afresh(rig);
    for (int i = 0; i < 2; i++)
        c.lanes[i] = rig_aggregator(rig, 1);
    c.worker = rig_join(rig, "resnet", 0, 1, &session, &job);
    c.worker->takes_holds = true;
    message_free(end_expect_reply(c.worker, end_declare(c.worker, 2, names, elements)));
    c.asker = rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    c.job = jobs_find_id(rig->coordinator->service, job);
    set_rule(&c, "b", UPDATE_SGD, 6);
    set_rule(&c, "w", UPDATE_ADAM, 6);
    assert_ptr_not_equal(end_of(&c, "b"), end_of(&c, "w"));
    for (int i = 0; i < 2; i++)
        message_free(end_expect(c.lanes[i], BODY(PLACE_REQUEST)));
    return c;
}

static uint64_t ask_of(struct saving_case *c, struct end *asker, const char *job)
{
    WIRE(SnapshotRequest) ask = GRADPOOL__WIRE__SNAPSHOT_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    ask.job = (char *)job;
    request.body_case = BODY(SNAPSHOT_REQUEST);
    request.snapshot_request = &ask;
    return c->request = end_send(asker, &request);
}

static void expect_hold(struct saving_case *c)
{
    envelope *hold = end_expect(c->worker, BODY(HOLD));
    assert_false(hold->hold->is_over);
    c->hold = hold->hold->hold;
    message_free(hold);
}

static void expect_let_go(struct saving_case *c)
{
    envelope *hold = end_expect(c->worker, BODY(HOLD));
    assert_true(hold->hold->is_over);
    assert_int_equal(hold->hold->hold, c->hold);
    message_free(hold);
}

static void says(struct saving_case *c, int state, int code, const char *text)
{
    WIRE(HeldRequest) held = GRADPOOL__WIRE__HELD_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT, *reply;
    held.hold = c->hold;
    held.state = state;
    held.code = code;
    held.text = (char *)text;
    request.body_case = BODY(HELD_REQUEST);
    request.held_request = &held;
    reply = end_ask(c->worker, &request);
    assert_int_equal(reply->body_case, BODY(DONE));
    message_free(reply);
}

static void says_ended(struct saving_case *c) { says(c, STATE(ENDED), 0, ""); }

/* Orders a snapshot while the rank is at the end of an iteration. */
static void ask(struct saving_case *c)
{
    ask_of(c, c->asker, "resnet");
    expect_hold(c);
    says_ended(c);
}

static void expect_refused(struct saving_case *c, uint64_t request, int code, const char *text)
{
    envelope *reply = end_expect_reply(c->asker, request);
    assert_int_equal(reply->body_case, BODY(FAILURE));
    if (!strstr(reply->failure->text, text))
        fail_msg("'%s' does not say '%s'", reply->failure->text, text);
    assert_int_equal(reply->failure->code, code);
    message_free(reply);
}

static void expect_standing(struct saving_case *c, uint64_t round)
{
    envelope *reply = end_expect_reply(c->asker, c->request);
    if (reply->body_case != BODY(SNAPSHOT_REPLY))
        fail_msg("refused: %s", reply->failure->text);
    const WIRE(SnapshotReply) *all = reply->snapshot_reply;
    assert_int_equal(all->round, round);
    assert_int_equal(all->n_tensors, 2);
    assert_string_equal(all->tensors[0]->name, "b"); /* names are sorted */
    assert_string_equal(all->tensors[1]->name, "w");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(all->tensors[i]->steps, 6);
        assert_int_equal(all->tensors[i]->elements, ELEMENTS);
    }
    c->snapshot = all->snapshot;
    message_free(reply);
    expect_let_go(c);
}

static uint64_t ask_next(struct saving_case *c)
{
    WIRE(SnapshotNextRequest) next = GRADPOOL__WIRE__SNAPSHOT_NEXT_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    next.snapshot = c->snapshot;
    request.body_case = BODY(SNAPSHOT_NEXT_REQUEST);
    request.snapshot_next_request = &next;
    return end_send(c->asker, &request);
}

static void end_it(struct saving_case *c)
{
    WIRE(SnapshotEndRequest) end = GRADPOOL__WIRE__SNAPSHOT_END_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT, *reply;
    end.snapshot = c->snapshot;
    request.body_case = BODY(SNAPSHOT_END_REQUEST);
    request.snapshot_end_request = &end;
    reply = end_ask(c->asker, &request);
    assert_int_equal(reply->body_case, BODY(DONE));
    message_free(reply);
}

static void expect_thawed(struct saving_case *c)
{
    for (int i = 0; i < 2; i++) {
        envelope *thaw = end_expect(c->lanes[i], BODY(THAW_REQUEST));
        assert_int_equal(thaw->thaw_request->n_pieces, 1);
        message_free(thaw);
        end_expect_none(c->lanes[i], BODY(THAW_REQUEST));
    }
}

static void forget_releases(struct saving_case *c)
{
    for (int i = 0; i < 2; i++)
        message_free(end_expect(c->lanes[i], BODY(RELEASE_REQUEST)));
}

/* --- a successful snapshot --- */

/* Checks the bytes of the arrays, which follow the head of the state. The rig gives each byte a
 * value by its offset. */
static void check_part(const WIRE(SnapshotPart) * part, uint64_t *covered)
{
    assert_int_equal(part->offset, *covered);
    *covered += part->data.len;
    for (size_t i = 0; i < part->data.len; i++)
        assert_int_equal(part->data.data[i], (uint8_t)((HEAD + part->offset + i) >> 10));
}

static void all_idle_tensors_are_read_and_continue(void **state)
{
    struct saving_case c = begin(*state);
    uint64_t covered[2] = {0};
    ask(&c);
    expect_standing(&c, RIG_ROUND);
    forget_releases(&c);
    for (;;) {
        envelope *reply = end_expect_reply(c.asker, ask_next(&c));
        assert_int_equal(reply->body_case, BODY(SNAPSHOT_PARTS));
        const WIRE(SnapshotParts) *parts = reply->snapshot_parts;
        size_t count = parts->n_parts;
        for (size_t i = 0; i < count; i++)
            check_part(parts->parts[i], &covered[parts->parts[i]->tensor]);
        message_free(reply);
        if (count == 0)
            break;
    }
    assert_int_equal(covered[0], BYTES);
    assert_int_equal(covered[1], 3 * BYTES);
    for (int i = 0; i < 2; i++)
        end_expect_none(c.lanes[i], BODY(THAW_REQUEST));
    end_it(&c);
    expect_thawed(&c);
    kept_log_expect(" tensors were held after round 7 for ");
}

static void lanes_get_the_request_once_the_rank_has_ended_an_iteration(void **state)
{
    struct saving_case c = begin(*state);
    ask_of(&c, c.asker, "resnet");
    expect_hold(&c);
    says(&c, STATE(RESTS), 0, "");
    says(&c, STATE(GOES_ON), 0, "");
    for (int i = 0; i < 2; i++)
        end_expect_none(c.lanes[i], BODY(RELEASE_REQUEST));
    says_ended(&c);
    forget_releases(&c);
    expect_standing(&c, RIG_ROUND);
}

static void a_rank_that_rests_for_some_time_counts_as_at_the_end_of_an_iteration(void **state)
{
    struct saving_case c = begin(*state);
    ask_of(&c, c.asker, "resnet");
    expect_hold(&c);
    says(&c, STATE(RESTS), 0, "");
    expect_standing(&c, RIG_ROUND);
}

static void a_report_for_another_hold_is_ignored(void **state)
{
    struct saving_case c = begin(*state);
    ask_of(&c, c.asker, "resnet");
    expect_hold(&c);
    c.hold++;
    says_ended(&c);
    c.hold--;
    for (int i = 0; i < 2; i++)
        end_expect_none(c.lanes[i], BODY(RELEASE_REQUEST));
    says_ended(&c);
    expect_standing(&c, RIG_ROUND);
}

/* --- a snapshot for a rank of the job, between two of its iterations --- */

static uint64_t ask_between(struct saving_case *c, char *tensor)
{
    WIRE(SnapshotRequest) ask = GRADPOOL__WIRE__SNAPSHOT_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    ask.job = "resnet";
    ask.between = true;
    ask.tensors = &tensor;
    ask.n_tensors = 1;
    request.body_case = BODY(SNAPSHOT_REQUEST);
    request.snapshot_request = &ask;
    return end_send(c->asker, &request);
}

static void a_rank_reads_the_named_tensors_without_a_hold(void **state)
{
    struct saving_case c = begin(*state);
    /* a tensor with QUORUM_ANY is ignored unless the request names it */
    jobs_tensor_named(c.job, "b")->terms.quorum = QUORUM_ANY;
    envelope *reply = end_expect_reply(c.asker, ask_between(&c, "w"));
    assert_int_equal(reply->body_case, BODY(SNAPSHOT_REPLY));
    assert_int_equal(reply->snapshot_reply->n_tensors, 1);
    assert_string_equal(reply->snapshot_reply->tensors[0]->name, "w");
    c.snapshot = reply->snapshot_reply->snapshot;
    message_free(reply);
    end_expect_none(c.worker, BODY(HOLD));
    end_expect_none(end_of(&c, "b"), BODY(RELEASE_REQUEST));
    end_it(&c);
    message_free(end_expect(end_of(&c, "w"), BODY(THAW_REQUEST)));
    end_expect_none(c.worker, BODY(HOLD));
}

static void a_rank_reads_when_the_snapshot_of_an_operator_is_over(void **state)
{
    struct saving_case c = begin(*state);
    ask_of(&c, c.asker, "resnet");
    expect_hold(&c);
    uint64_t second = ask_between(&c, "w");
    end_expect_none(c.worker, BODY(HOLD)); /* the rank is still held for the first snapshot */
    says_ended(&c);
    expect_standing(&c, RIG_ROUND);
    end_it(&c);
    envelope *reply = end_expect_reply(c.asker, second);
    assert_int_equal(reply->body_case, BODY(SNAPSHOT_REPLY));
    message_free(reply);
    end_expect_none(c.worker, BODY(HOLD));
}

/* A round of one piece was abandoned, and is repeated. */
static void a_snapshot_waits_until_all_pieces_have_the_same_round(void **state)
{
    struct rig *rig = *state;
    rig->options.piece_bytes_max = BYTES / 2;
    struct saving_case c = begin(rig);
    struct end *lane = end_of(&c, "w");
    assert_int_equal(jobs_tensor_named(c.job, "w")->pieces_count, 2);
    lane->lag = 1;
    uint64_t request = ask_between(&c, "w");
    message_free(end_expect(lane, BODY(RELEASE_REQUEST)));
    message_free(end_expect(lane, BODY(THAW_REQUEST)));
    lane->lag = 0;
    envelope *reply = end_expect_reply(c.asker, request);
    assert_int_equal(reply->body_case, BODY(SNAPSHOT_REPLY));
    assert_int_equal(reply->snapshot_reply->round, RIG_ROUND);
    message_free(reply);
    kept_log_expect(": some of its pieces repeat a round; try again");
}

static void a_missing_tensor_is_named(void **state)
{
    struct saving_case c = begin(*state);
    expect_refused(&c, ask_between(&c, "v"), -ENOENT, "job resnet has no tensor 'v'");
}

/* --- jobs without a snapshot --- */

static void an_impossible_snapshot_is_refused_at_once(void **state)
{
    struct saving_case c = begin(*state);
    expect_refused(&c, ask_of(&c, c.asker, "resnot"), -ENOENT, "there is no job resnot");
    set_rule(&c, "b", 0, 0);
    set_rule(&c, "w", 0, 0);
    ask_of(&c, c.asker, "resnet");
    expect_refused(&c, c.request, -ENODATA, "no tensor with an update rule");
    set_rule(&c, "b", UPDATE_SGD, 6);
    jobs_tensor_named(c.job, "b")->terms.ranks[0] = 1;
    ask_of(&c, c.asker, "resnet");
    expect_refused(&c, c.request, -EOPNOTSUPP,
                   "tensor 'b' has a set of ranks of its own, which a snapshot cannot store");
    jobs_tensor_named(c.job, "b")->terms.ranks[0] = 0;
    jobs_tensor_named(c.job, "b")->terms.quorum = QUORUM_ANY;
    ask_of(&c, c.asker, "resnet");
    expect_refused(&c, c.request, -EOPNOTSUPP, "rounds without all ranks");
    jobs_tensor_named(c.job, "b")->terms.quorum = QUORUM_ALL;
    end_expect_none(c.worker, BODY(HOLD));
    end_expect_none(c.lanes[0], BODY(RELEASE_REQUEST));
    end_expect_none(c.lanes[1], BODY(RELEASE_REQUEST));
}

static void tensors_that_are_not_updated_once_an_iteration_are_named(void **state)
{
    struct saving_case c = begin(*state);
    ask_of(&c, c.asker, "resnet");
    expect_hold(&c);
    says(&c, STATE(FAILED), -EOPNOTSUPP, "tensor 'w' had no update");
    expect_refused(&c, c.request, -EOPNOTSUPP,
                   "tensor 'w' had no update: not every tensor is updated once an iteration");
    expect_let_go(&c);
    for (int i = 0; i < 2; i++)
        end_expect_none(c.lanes[i], BODY(RELEASE_REQUEST));
}

static void a_snapshot_is_tried_again_after_a_temporary_obstacle(void **state)
{
    struct saving_case c = begin(*state);
    ask_of(&c, c.asker, "resnet");
    expect_hold(&c);
    says(&c, STATE(FAILED), -EAGAIN, "a tensor was declared");
    expect_let_go(&c);
    expect_hold(&c);
    says_ended(&c);
    expect_standing(&c, RIG_ROUND);
}

static struct end *resume(struct saving_case *c)
{
    WIRE(JoinRequest) join;
    envelope request, *reply;
    join_request(&request, &join, "resnet", 0, 1);
    join.session = c->job->sessions[0]->number;
    join.job_id = c->job->id;
    struct end *worker = rig_connect(c->rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    worker->takes_holds = true;
    reply = end_ask(worker, &request);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    message_free(reply);
    return worker;
}

static void an_absent_rank_delays_no_snapshot(void **state)
{
    struct saving_case c = begin(*state);
    ask_of(&c, c.asker, "resnet");
    expect_hold(&c);
    end_close(c.worker);
    for (int i = 0; i < 2; i++)
        end_expect_none(c.lanes[i], BODY(RELEASE_REQUEST));
    c.worker = resume(&c);
    expect_hold(&c);
    says_ended(&c);
    expect_standing(&c, RIG_ROUND);
    kept_log_expect(": no connected rank has declared all its tensors");
    kept_log_expect("a snapshot waits: ");
}

static void parameters_that_no_rank_has_set_give_no_snapshot(void **state)
{
    struct saving_case c = begin(*state);
    end_of(&c, "w")->steps = 0;
    ask(&c);
    expect_refused(&c, c.request, -ENODATA, "tensor 'w' of job resnet has no parameters");
    expect_thawed(&c);
    expect_let_go(&c);
}

static void a_snapshot_waits_until_the_lane_has_the_round(void **state)
{
    struct saving_case c = begin(*state);
    struct end *lane = end_of(&c, "w");
    lane->steps = 0;
    lane->recovering = true;
    ask(&c);
    message_free(end_expect(lane, BODY(RELEASE_REQUEST)));
    message_free(end_expect(lane, BODY(THAW_REQUEST)));
    expect_let_go(&c);
    lane->steps = 7;
    lane->recovering = false;
    expect_hold(&c);
    says_ended(&c);
    expect_standing(&c, RIG_ROUND);
    kept_log_expect(
        ": the lane was lost, and some workers have not yet reported the state of the tensor");
}

static void a_tenant_has_snapshots_of_its_own_jobs_alone(void **state)
{
    struct saving_case c = begin(*state);
    struct tenant other = *c.job->tenant, *own = c.job->tenant;
    /* a tenant without operator rights sends the request */
    c.asker = rig_connect(c.rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    c.job->tenant = &other;
    ask_of(&c, c.asker, "resnet");
    expect_refused(&c, c.request, -ENOENT, "there is no job resnet");
    c.job->tenant = own;
    ask(&c);
    expect_standing(&c, RIG_ROUND);
}

/* --- events during a snapshot --- */

static void a_refusal_by_a_lane_ends_the_snapshot_and_rounds_continue(void **state)
{
    struct saving_case c = begin(*state);
    end_of(&c, "w")->refuses = BODY(RELEASE_REQUEST);
    ask(&c);
    expect_refused(&c, c.request, -EIO, "it does not want to");
    expect_thawed(&c);
    expect_let_go(&c);
    end_of(&c, "w")->refuses = BODY(STATE_REQUEST);
    ask(&c);
    expect_standing(&c, RIG_ROUND);
    expect_refused(&c, ask_next(&c), -EIO, "no snapshot: it does not want to");
    expect_thawed(&c);
    expect_refused(&c, ask_next(&c), -EINVAL, "no such snapshot");
}

static void the_end_of_the_caller_ends_the_snapshot(void **state)
{
    struct saving_case c = begin(*state);
    ask(&c);
    expect_standing(&c, RIG_ROUND);
    end_close(c.asker);
    expect_thawed(&c);
}

static void a_lost_lane_ends_the_snapshot(void **state)
{
    struct saving_case c = begin(*state);
    ask(&c);
    expect_standing(&c, RIG_ROUND);
    struct end *gone = c.lanes[0];
    end_close(gone);
    message_free(end_expect(c.lanes[1], BODY(THAW_REQUEST)));
    expect_refused(&c, ask_next(&c), -ECONNRESET,
                   "no snapshot: an aggregator has ended; try again");
}

static void tasks_stay_and_a_second_snapshot_waits_for_the_end_of_the_first(void **state)
{
    struct saving_case c = begin(*state);
    WIRE(MoveRequest) move = GRADPOOL__WIRE__MOVE_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    struct end *other = rig_connect_locally(c.rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    ask(&c);
    expect_standing(&c, RIG_ROUND);
    uint64_t second = ask_of(&c, other, "resnet");
    move.job = "resnet";
    move.lane = c.lanes[0]->lanes[0];
    request.body_case = BODY(MOVE_REQUEST);
    request.move_request = &move;
    uint64_t moved = end_send(other, &request);
    forget_releases(&c);
    end_expect_none(c.lanes[0], BODY(PLACE_REQUEST));
    end_expect_none(c.lanes[1], BODY(RELEASE_REQUEST));
    end_it(&c);
    envelope *reply = end_expect_reply(other, moved);
    assert_int_equal(reply->body_case, BODY(MOVE_REPLY));
    assert_int_equal(reply->move_reply->tasks, 1);
    message_free(reply);
    expect_hold(&c);
    says_ended(&c);
    reply = end_expect_reply(other, second);
    assert_int_equal(reply->body_case, BODY(SNAPSHOT_REPLY));
    message_free(reply);
    kept_log_expect(" is being made already");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(all_idle_tensors_are_read_and_continue),
        CASE(lanes_get_the_request_once_the_rank_has_ended_an_iteration),
        CASE(a_rank_that_rests_for_some_time_counts_as_at_the_end_of_an_iteration),
        CASE(a_report_for_another_hold_is_ignored),
        CASE(a_rank_reads_the_named_tensors_without_a_hold),
        CASE(a_rank_reads_when_the_snapshot_of_an_operator_is_over),
        CASE(a_snapshot_waits_until_all_pieces_have_the_same_round),
        CASE(a_missing_tensor_is_named),
        CASE(an_impossible_snapshot_is_refused_at_once),
        CASE(tensors_that_are_not_updated_once_an_iteration_are_named),
        CASE(a_snapshot_is_tried_again_after_a_temporary_obstacle),
        CASE(an_absent_rank_delays_no_snapshot),
        CASE(parameters_that_no_rank_has_set_give_no_snapshot),
        CASE(a_snapshot_waits_until_the_lane_has_the_round),
        CASE(a_tenant_has_snapshots_of_its_own_jobs_alone),
        CASE(a_refusal_by_a_lane_ends_the_snapshot_and_rounds_continue),
        CASE(the_end_of_the_caller_ends_the_snapshot),
        CASE(a_lost_lane_ends_the_snapshot),
        CASE(tasks_stay_and_a_second_snapshot_waits_for_the_end_of_the_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
