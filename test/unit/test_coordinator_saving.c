/* What lanes and an operator are told when a snapshot of a job is taken (K47): all its tensors with
 * update rules stand still between the same two iterations, are read, and go on, whatever comes. */
#include "test/unit/coordinator_rig.h"

#include "svc/coordinator/service.h"
#include "svc/reduce/update.h"

#include <errno.h>
#include <string.h>

#define ELEMENTS 1000
#define BYTES (ELEMENTS * sizeof(float))
#define HEAD 100 /* of a piece's state, before its arrays */

/* Tensor "b" with SGD on one lane, "w" with Adam on the other. */
struct saving_case {
    struct rig *rig;
    struct end *lanes[2], *worker, *asker;
    struct job *job;
    uint64_t request, snapshot;
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
    message_free(end_expect_reply(c.worker, end_declare(c.worker, 2, names, elements)));
    c.asker = rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    c.job = jobs_find_id(&rig->coordinator->service, job);
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

static void ask(struct saving_case *c) { ask_of(c, c->asker, "resnet"); }

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
    assert_string_equal(all->tensors[0]->name, "b"); /* names ascend */
    assert_string_equal(all->tensors[1]->name, "w");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(all->tensors[i]->steps, 6);
        assert_int_equal(all->tensors[i]->elements, ELEMENTS);
    }
    c->snapshot = all->snapshot;
    message_free(reply);
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

/* --- as it should be --- */

/* The arrays are behind the head: the rig's bytes tell where they come from. */
static void check_part(const WIRE(SnapshotPart) * part, uint64_t *covered)
{
    assert_int_equal(part->offset, *covered);
    *covered += part->data.len;
    for (size_t i = 0; i < part->data.len; i++)
        assert_int_equal(part->data.data[i], (uint8_t)((HEAD + part->offset + i) >> 10));
}

static void all_that_stand_are_read_and_go_on(void **state)
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
}

/* As lanes of a job that trains: rounds go on when they are asked to stand. */
static struct saving_case begin_training(struct rig *rig)
{
    struct saving_case c = begin(rig);
    for (int i = 0; i < 2; i++) {
        c.lanes[i]->trains = true;
        c.lanes[i]->round = RIG_ROUND;
    }
    return c;
}

/* While all others stand it goes on, until it has had so many updates. */
static void goes_on(struct saving_case *c, const char *tensor, uint64_t steps)
{
    struct end *lane = end_of(c, tensor), *other = end_of(c, tensor[0] == 'b' ? "w" : "b");
    lane->round += steps + 1 - lane->steps;
    lane->steps = steps + 1; /* it is asked behind the thaw */
    message_free(end_expect(lane, BODY(THAW_REQUEST)));
    for (size_t i = 0; i < other->inbox_count; i++)
        assert_int_not_equal(other->inbox[i]->body_case, BODY(THAW_REQUEST));
    envelope *release = end_expect(lane, BODY(RELEASE_REQUEST));
    assert_false(release->release_request->behind);
    message_free(release);
}

static void expect_steps(struct saving_case *c, uint64_t of_b, uint64_t of_w)
{
    envelope *reply = end_expect_reply(c->asker, c->request);
    if (reply->body_case != BODY(SNAPSHOT_REPLY))
        fail_msg("refused: %s", reply->failure->text);
    assert_int_equal(reply->snapshot_reply->tensors[0]->steps, of_b);
    assert_int_equal(reply->snapshot_reply->tensors[1]->steps, of_w);
    message_free(reply);
}

static void how_far_one_gets_while_others_stand_shows_where_an_iteration_ends(void **state)
{
    struct saving_case c = begin_training(*state);
    set_rule(&c, "w", UPDATE_ADAM, 60); /* of an older tensor, say */
    ask(&c);
    forget_releases(&c);
    goes_on(&c, "w", 61);
    goes_on(&c, "b", 7); /* the workers took longer: once more */
    goes_on(&c, "w", 62);
    goes_on(&c, "b", 9);
    goes_on(&c, "w", 64);
    goes_on(&c, "b", 11);
    goes_on(&c, "w", 65);
    expect_steps(&c, 11, 65);
}

static void a_broadcast_in_between_is_no_update(void **state)
{
    struct saving_case c = begin_training(*state);
    ask(&c);
    forget_releases(&c);
    goes_on(&c, "w", 7);
    end_of(&c, "b")->round += 6; /* and it is after the fifth update since */
    goes_on(&c, "b", 5);
    message_free(end_expect(end_of(&c, "w"), BODY(THAW_REQUEST)));
    message_free(end_expect(end_of(&c, "b"), BODY(THAW_REQUEST)));
    forget_releases(&c); /* from the beginning */
    set_rule(&c, "w", UPDATE_ADAM, 5);
    goes_on(&c, "w", 6);
    goes_on(&c, "b", 7);
    goes_on(&c, "w", 8);
    goes_on(&c, "b", 9);
    goes_on(&c, "w", 9);
    expect_steps(&c, 9, 9);
}

static void as_many_updates_of_each_are_no_iteration_while_the_job_trains(void **state)
{
    struct saving_case c = begin_training(*state);
    ask(&c);
    forget_releases(&c);
    goes_on(&c, "w", 6); /* it had done that of this iteration before "b" */
    goes_on(&c, "b", 8);
    goes_on(&c, "w", 8);
    goes_on(&c, "b", 10);
    goes_on(&c, "w", 9);
    expect_steps(&c, 10, 9);
}

/* --- what has no snapshot --- */

static void what_cannot_be_saved_is_told_at_once(void **state)
{
    struct saving_case c = begin(*state);
    expect_refused(&c, ask_of(&c, c.asker, "resnot"), -ENOENT, "there is no job resnot");
    set_rule(&c, "b", 0, 0);
    set_rule(&c, "w", 0, 0);
    ask(&c);
    expect_refused(&c, c.request, -ENODATA, "no tensor with an update rule");
    set_rule(&c, "b", UPDATE_SGD, 6);
    jobs_tensor_named(c.job, "b")->terms.ranks[0] = 1;
    ask(&c);
    expect_refused(&c, c.request, -EOPNOTSUPP, "a set of ranks of its own");
    jobs_tensor_named(c.job, "b")->terms.ranks[0] = 0;
    end_expect_none(c.lanes[0], BODY(RELEASE_REQUEST));
    end_expect_none(c.lanes[1], BODY(RELEASE_REQUEST));
}

static void tensors_that_are_not_updated_once_an_iteration_are_named(void **state)
{
    struct saving_case c = begin_training(*state);
    ask(&c);
    forget_releases(&c);
    goes_on(&c, "w", 6);
    goes_on(&c, "b", 8);
    goes_on(&c, "w", 7);
    goes_on(&c, "b", 10);
    expect_refused(&c, c.request, -EOPNOTSUPP, "tensor 'w' had 1 updates while 'b' had 2");
    expect_thawed(&c);
}

static void who_does_not_wait_for_others_has_no_iterations(void **state)
{
    struct saving_case c = begin_training(*state);
    ask(&c);
    forget_releases(&c);
    goes_on(&c, "w", 6);
    goes_on(&c, "b", 9);
    expect_refused(&c, c.request, -EOPNOTSUPP, "tensor 'w' had 0 updates while 'b' had 3");
    expect_thawed(&c);
}

static void parameters_that_nobody_has_set_are_no_snapshot(void **state)
{
    struct saving_case c = begin(*state);
    end_of(&c, "w")->steps = 0;
    ask(&c);
    expect_refused(&c, c.request, -ENODATA, "tensor 'w' of job resnet has no parameters");
    expect_thawed(&c);
}

static void what_a_lane_does_not_know_yet_is_waited_for(void **state)
{
    struct saving_case c = begin(*state);
    struct end *lane = end_of(&c, "w");
    lane->steps = 0;
    lane->recovering = true;
    ask(&c);
    message_free(end_expect(lane, BODY(RELEASE_REQUEST)));
    message_free(end_expect(lane, BODY(THAW_REQUEST)));
    lane->steps = 7;
    lane->recovering = false;
    expect_standing(&c, RIG_ROUND);
}

static void a_tenant_has_snapshots_of_its_own_jobs_alone(void **state)
{
    struct saving_case c = begin(*state);
    struct tenant other = *c.job->tenant, *own = c.job->tenant;
    other.is_operator = own->is_operator = false;
    c.job->tenant = &other;
    ask(&c);
    expect_refused(&c, c.request, -ENOENT, "there is no job resnet");
    c.job->tenant = own;
    ask(&c);
    expect_standing(&c, RIG_ROUND);
    own->is_operator = true;
}

/* --- what comes between --- */

static void what_a_lane_refuses_ends_it_and_all_go_on(void **state)
{
    struct saving_case c = begin(*state);
    end_of(&c, "w")->refuses = BODY(RELEASE_REQUEST);
    ask(&c);
    expect_refused(&c, c.request, -EIO, "it does not want to");
    expect_thawed(&c);
    end_of(&c, "w")->refuses = BODY(STATE_REQUEST);
    ask(&c);
    expect_standing(&c, RIG_ROUND);
    expect_refused(&c, ask_next(&c), -EIO, "it does not want to");
    expect_thawed(&c);
    expect_refused(&c, ask_next(&c), -EINVAL, "no such snapshot");
}

static void who_asked_and_is_gone_holds_up_nobody(void **state)
{
    struct saving_case c = begin(*state);
    ask(&c);
    expect_standing(&c, RIG_ROUND);
    end_close(c.asker);
    expect_thawed(&c);
}

static void a_lane_that_is_gone_ends_it(void **state)
{
    struct saving_case c = begin(*state);
    ask(&c);
    expect_standing(&c, RIG_ROUND);
    struct end *gone = c.lanes[0];
    end_close(gone);
    message_free(end_expect(c.lanes[1], BODY(THAW_REQUEST)));
    expect_refused(&c, ask_next(&c), -ECONNRESET, "an aggregator is gone");
}

static void tasks_stay_and_a_second_snapshot_waits_until_it_is_over(void **state)
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
    reply = end_expect_reply(other, second);
    assert_int_equal(reply->body_case, BODY(SNAPSHOT_REPLY));
    message_free(reply);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(all_that_stand_are_read_and_go_on),
        CASE(how_far_one_gets_while_others_stand_shows_where_an_iteration_ends),
        CASE(a_broadcast_in_between_is_no_update),
        CASE(as_many_updates_of_each_are_no_iteration_while_the_job_trains),
        CASE(what_cannot_be_saved_is_told_at_once),
        CASE(tensors_that_are_not_updated_once_an_iteration_are_named),
        CASE(who_does_not_wait_for_others_has_no_iterations),
        CASE(parameters_that_nobody_has_set_are_no_snapshot),
        CASE(what_a_lane_does_not_know_yet_is_waited_for),
        CASE(a_tenant_has_snapshots_of_its_own_jobs_alone),
        CASE(what_a_lane_refuses_ends_it_and_all_go_on),
        CASE(who_asked_and_is_gone_holds_up_nobody),
        CASE(a_lane_that_is_gone_ends_it),
        CASE(tasks_stay_and_a_second_snapshot_waits_until_it_is_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
