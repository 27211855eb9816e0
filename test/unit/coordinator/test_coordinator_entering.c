/* Tests the iteration in which a late worker enters (K52). A training rank is held at the end of an
 * iteration until the lanes know the late worker in all its tensors. If no rank can be held, the
 * late worker enters each tensor in its open round. */
#include "test/unit/coordinator/members_case.h"

#include "svc/coordinator/service.h"
#include "svc/reduce/update.h"

#include <string.h>

#define WORKERS 3
#define LATE 2  /* rank of the late worker */
#define PIECE 1 /* first piece of "w" */
#define ALL 7u
#define LEFT 3u /* bit set of ranks 0 and 1 */

static struct joining how(uint32_t rank)
{
    return (struct joining){
        .rank = rank, .workers = WORKERS, .workers_max = WORKERS + 1, .continues = true};
}

struct scene {
    struct end *lane;
    struct shadow shadow;
    struct member workers[WORKERS];
};

/* Starts a job of three workers, which train one tensor on one lane. The test answers their
 * holds. */
static struct scene begin_with(struct rig *rig, const char *tensor)
{
    struct scene s = {.lane = rig_aggregator(rig, 1)};
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        s.workers[rank] = members_join(rig, how(rank));
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        struct end *e = s.workers[rank].end;
        members_declared(e, members_declare(e, tensor, NULL), NULL);
        e->takes_holds = true;
    }
    shadow_until(&s.shadow, s.lane, PIECE, ALL);
    return s;
}

static struct scene begin(struct rig *rig) { return begin_with(rig, "w"); }

static void expect_served(struct scene *s, uint64_t ranks)
{
    shadow_until(&s->shadow, s->lane, PIECE, ranks);
}

static uint64_t take_hold_of(struct scene *s, uint32_t rank, int scope)
{
    envelope *message = end_expect(s->workers[rank].end, BODY(HOLD));
    assert_false(message->hold->is_over);
    assert_int_equal(message->hold->scope, scope);
    uint64_t hold = message->hold->hold;
    message_free(message);
    return hold;
}

static uint64_t take_hold(struct scene *s, uint32_t rank)
{
    return take_hold_of(s, rank, GRADPOOL__WIRE__HOLD_SCOPE__HOLD_ROUNDS);
}

static void expect_let_go(struct scene *s, uint32_t rank, uint64_t hold)
{
    envelope *message = end_expect(s->workers[rank].end, BODY(HOLD));
    assert_true(message->hold->is_over);
    assert_int_equal(message->hold->hold, hold);
    message_free(message);
}

static void say(struct scene *s, uint32_t rank, uint64_t hold, int state)
{
    WIRE(HeldRequest) held = GRADPOOL__WIRE__HELD_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    held.hold = hold;
    held.state = (WIRE(HoldState))state;
    held.text = (char *)"as no other did";
    request.body_case = BODY(HELD_REQUEST);
    request.held_request = &held;
    message_free(end_ask(s->workers[rank].end, &request));
}

/* Rank 2 leaves, returns and declares. The coordinator sends a hold to rank 0. */
static struct scene come_back_to(struct rig *rig, const char *tensor, uint64_t *ret_declare)
{
    struct scene s = begin_with(rig, tensor);
    end_leave(s.workers[2].end);
    expect_served(&s, LEFT);
    s.workers[2] = members_join(rig, how(2));
    *ret_declare = members_declare(s.workers[2].end, tensor, NULL);
    return s;
}

static struct scene come_back(struct rig *rig, uint64_t *ret_declare)
{
    return come_back_to(rig, "w", ret_declare);
}

static void a_late_worker_enters_when_a_rank_has_ended_an_iteration(void **state)
{
    uint64_t id, ranks;
    struct scene s = come_back(*state, &id);
    uint64_t hold = take_hold(&s, 0);
    expect_served(&s, LEFT);
    say(&s, 0, hold, GRADPOOL__WIRE__HOLD_STATE__HOLD_ENDED);
    expect_served(&s, ALL);
    members_declared(s.workers[2].end, id, &ranks);
    assert_int_equal(ranks, ALL);
    expect_let_go(&s, 0, hold);
    kept_log_expect(": 2 workers now take part in rounds, version 1, epoch 2");
}

static void a_late_worker_enters_at_once_where_iterations_have_no_end(void **state)
{
    uint64_t id;
    struct scene s = come_back(*state, &id);
    uint64_t hold = take_hold(&s, 0);
    say(&s, 0, hold, GRADPOOL__WIRE__HOLD_STATE__HOLD_FAILED);
    expect_let_go(&s, 0, hold);
    expect_served(&s, ALL);
    members_declared(s.workers[2].end, id, NULL);
    kept_log_expect(": late workers enter in the middle of an iteration: ");
}

static void a_leaving_rank_is_not_awaited_with_late_workers(void **state)
{
    uint64_t id;
    struct scene s = come_back(*state, &id);
    uint64_t hold = take_hold(&s, 0);
    end_leave(s.workers[1].end);
    expect_let_go(&s, 0, hold);
    expect_served(&s, ALL & ~2u);
    members_declared(s.workers[2].end, id, NULL);
}

/* ---- a job with step records ---- */

static void in_a_job_with_steps_a_late_worker_waits_until_a_rank_can_be_held(void **state)
{
    uint64_t id, ranks;
    struct scene s = come_back_to(*state, TERMS_STEPS_NAME, &id);
    uint64_t hold = take_hold(&s, 0);
    say(&s, 0, hold, GRADPOOL__WIRE__HOLD_STATE__HOLD_FAILED);
    expect_let_go(&s, 0, hold);
    hold = take_hold(&s, 0);
    expect_served(&s, LEFT);
    say(&s, 0, hold, GRADPOOL__WIRE__HOLD_STATE__HOLD_ENDED);
    expect_served(&s, ALL);
    members_declared(s.workers[2].end, id, &ranks);
    assert_int_equal(ranks, ALL);
    expect_let_go(&s, 0, hold);
    kept_log_expect(": late workers wait for the end of a step: ");
}

static void in_a_job_with_steps_a_leave_does_not_let_a_late_worker_enter(void **state)
{
    uint64_t id;
    struct scene s = come_back_to(*state, TERMS_STEPS_NAME, &id);
    uint64_t hold = take_hold(&s, 0);
    end_leave(s.workers[1].end);
    expect_let_go(&s, 0, hold);
    expect_served(&s, 1);
    hold = take_hold(&s, 0);
    expect_served(&s, 1);
    say(&s, 0, hold, GRADPOOL__WIRE__HOLD_STATE__HOLD_ENDED);
    expect_served(&s, ALL & ~2u);
    members_declared(s.workers[2].end, id, NULL);
    expect_let_go(&s, 0, hold);
}

/* When all other ranks have left, no rank can later give the late worker the state. The late worker
 * then enters, and gets an error in its first step. */
static void in_a_job_with_steps_a_late_worker_enters_when_all_others_have_left(void **state)
{
    uint64_t id, ranks;
    struct scene s = come_back_to(*state, TERMS_STEPS_NAME, &id);
    take_hold(&s, 0);
    end_leave(s.workers[0].end);
    end_leave(s.workers[1].end);
    expect_served(&s, 1u << 2);
    members_declared(s.workers[2].end, id, &ranks);
    assert_int_equal(ranks, 1u << 2);
}

/* ---- a late worker that declares and connects before its entry (K108) ---- */

static struct joining ahead(uint32_t rank)
{
    struct joining joining = how(rank);
    joining.asks_entry = true;
    return joining;
}

static uint64_t ask_to_enter(struct scene *s, uint32_t rank)
{
    WIRE(EnterRequest) enter = GRADPOOL__WIRE__ENTER_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    request.body_case = BODY(ENTER_REQUEST);
    request.enter_request = &enter;
    return end_send(s->workers[rank].end, &request);
}

static void expect_done(struct scene *s, uint32_t rank, uint64_t id)
{
    envelope *reply = end_expect_reply(s->workers[rank].end, id);
    assert_int_equal(reply->body_case, BODY(DONE));
    message_free(reply);
}

/* Rank 2 of a job with steps leaves, returns and declares. The coordinator answers the declaration
 * without a hold. */
static struct scene come_ahead(struct rig *rig)
{
    uint64_t ranks;
    struct scene s = begin_with(rig, TERMS_STEPS_NAME);
    end_leave(s.workers[LATE].end);
    expect_served(&s, LEFT);
    s.workers[LATE] = members_join(rig, ahead(LATE));
    uint64_t id = members_declare(s.workers[LATE].end, TERMS_STEPS_NAME, NULL);
    members_declared(s.workers[LATE].end, id, &ranks);
    assert_int_equal(ranks, LEFT);
    return s;
}

static void no_rank_is_held_before_the_late_worker_asks_to_enter(void **state)
{
    struct scene s = come_ahead(*state);
    end_expect_none(s.workers[0].end, BODY(HOLD));
    uint64_t id = ask_to_enter(&s, LATE);
    uint64_t hold = take_hold(&s, 0);
    say(&s, 0, hold, GRADPOOL__WIRE__HOLD_STATE__HOLD_ENDED);
    expect_served(&s, ALL);
    expect_let_go(&s, 0, hold);
    expect_done(&s, LATE, id);
    kept_log_expect("has declared its tensors and enters");
}

static void lanes_keep_the_connections_of_a_late_worker(void **state)
{
    struct scene s = come_ahead(*state);
    s.shadow.gone = 0;
    ask_to_enter(&s, LATE);
    say(&s, 0, take_hold(&s, 0), GRADPOOL__WIRE__HOLD_STATE__HOLD_ENDED);
    expect_served(&s, ALL);
    assert_int_equal(s.shadow.gone & ALL, 0);
}

static void others_leave_without_a_late_worker_that_has_not_asked(void **state)
{
    struct scene s = come_ahead(*state);
    end_leave(s.workers[1].end);
    expect_served(&s, 1);
    end_expect_none(s.workers[0].end, BODY(HOLD));
}

static void a_late_worker_that_goes_before_its_entry_holds_nobody(void **state)
{
    struct scene s = come_ahead(*state);
    ask_to_enter(&s, LATE);
    uint64_t hold = take_hold(&s, 0);
    s.shadow.gone = 0;
    end_leave(s.workers[LATE].end);
    expect_let_go(&s, 0, hold);
    shadow_take(&s.shadow, s.lane);
    assert_int_equal(s.shadow.gone, 1u << LATE); /* lanes close its connections */
    expect_served(&s, LEFT);
}

static void resume_all(struct scene *s, struct rig *rig)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        members_resume(rig, &s->workers[rank], rank == LATE ? ahead(rank) : how(rank));
        s->workers[rank].end->takes_holds = true;
    }
}

/* After a restart, the coordinator learns from the resumed session that the late worker has
 * requested its entry. */
static void a_restarted_coordinator_waits_for_the_request_to_enter(void **state)
{
    struct rig *rig = *state;
    struct scene s = come_ahead(rig);
    const struct end before = *s.lane;
    rig_crash(rig);
    rig_start(rig);
    s.lane = shadow_rejoin(&s.shadow, rig, &before, s.workers[0].job);
    resume_all(&s, rig);
    end_expect_none(s.workers[0].end, BODY(HOLD));
    uint64_t id = ask_to_enter(&s, LATE);
    uint64_t hold = take_hold(&s, 0);
    say(&s, 0, hold, GRADPOOL__WIRE__HOLD_STATE__HOLD_ENDED);
    expect_served(&s, ALL);
    expect_let_go(&s, 0, hold);
    expect_done(&s, LATE, id);
}

/* A request to enter is valid only until the connection ends. The worker then repeats the
 * request. */
static void a_late_worker_without_a_connection_does_not_enter(void **state)
{
    struct rig *rig = *state;
    struct scene s = come_ahead(rig);
    ask_to_enter(&s, LATE);
    uint64_t hold = take_hold(&s, 0);
    end_close(s.workers[LATE].end);
    rig_settle(rig);
    say(&s, 0, hold, GRADPOOL__WIRE__HOLD_STATE__HOLD_ENDED);
    expect_let_go(&s, 0, hold);
    members_resume(rig, &s.workers[LATE], ahead(LATE));
    ask_to_enter(&s, LATE);
    say(&s, 0, take_hold(&s, 0), GRADPOOL__WIRE__HOLD_STATE__HOLD_ENDED);
    expect_served(&s, ALL);
}

static void a_worker_that_joins_a_job_without_steps_is_added_when_it_declares(void **state)
{
    uint64_t ranks;
    struct scene s = begin(*state);
    end_leave(s.workers[LATE].end);
    expect_served(&s, LEFT);
    s.workers[LATE] = members_join(*state, ahead(LATE));
    uint64_t id = members_declare(s.workers[LATE].end, "w", NULL);
    uint64_t hold = take_hold(&s, 0);
    say(&s, 0, hold, GRADPOOL__WIRE__HOLD_STATE__HOLD_ENDED);
    members_declared(s.workers[LATE].end, id, &ranks);
    assert_int_equal(ranks, ALL);
    expect_let_go(&s, 0, hold);
    expect_done(&s, LATE, ask_to_enter(&s, LATE));
}

/* The other late worker has declared nothing, so the held rank continues after one regrouping. */
static void a_hold_does_not_wait_for_another_late_worker(void **state)
{
    struct scene s = come_ahead(*state);
    members_resize(s.workers[1].end, WORKERS + 1);
    struct joining fourth = ahead(WORKERS);
    fourth.workers = WORKERS + 1;
    struct member other = members_join(*state, fourth);
    ask_to_enter(&s, LATE);
    uint64_t hold = take_hold(&s, 1); /* rank 1 has requested a resize, which waits for this hold */
    say(&s, 1, hold, GRADPOOL__WIRE__HOLD_STATE__HOLD_ENDED);
    expect_let_go(&s, 1, hold);
    expect_served(&s, ALL);
    uint64_t id = members_declare(other.end, TERMS_STEPS_NAME, NULL);
    members_declared(other.end, id, NULL);
    end_expect_none(s.workers[1].end, BODY(HOLD));
}

/* The late worker enters two tensors together: the first tensor, and a tensor that other ranks
 * declare in the meantime. */
static void a_late_worker_enters_new_tensors_of_others_at_the_same_step(void **state)
{
    uint64_t ranks;
    struct scene s = come_ahead(*state);
    for (uint32_t rank = 0; rank < LATE; rank++) {
        uint64_t id = members_declare(s.workers[rank].end, "v", NULL);
        members_declared(s.workers[rank].end, id, &ranks);
        assert_int_equal(ranks, LEFT);
    }
    members_declared(s.workers[LATE].end, members_declare(s.workers[LATE].end, "v", NULL), &ranks);
    assert_int_equal(ranks, LEFT);
    end_expect_none(s.workers[0].end, BODY(HOLD));
    ask_to_enter(&s, LATE);
    say(&s, 0, take_hold(&s, 0), GRADPOOL__WIRE__HOLD_STATE__HOLD_ENDED);
    expect_served(&s, ALL);
    shadow_until(&s.shadow, s.lane, PIECE + 1, ALL);
}

static void another_rank_gets_the_hold_when_the_held_rank_is_released(void **state)
{
    uint64_t id;
    struct scene s = come_back(*state, &id);
    uint64_t hold = take_hold(&s, 0);
    members_resize(s.workers[1].end, WORKERS + 1);
    expect_let_go(&s, 0, hold);
    hold = take_hold(&s, 1);
    expect_served(&s, LEFT);
    say(&s, 1, hold, GRADPOOL__WIRE__HOLD_STATE__HOLD_ENDED);
    expect_served(&s, ALL);
    members_declared(s.workers[2].end, id, NULL);
    expect_let_go(&s, 1, hold);
    kept_log_expect("is resized to 4 workers, from 3");
}

/* Rounds of "w" need rank 2, and rank 2 still waits for the answer to its declaration. Therefore no
 * iteration ends, and no rank can be held. */
static void a_training_rank_that_declares_more_does_not_wait_for_late_workers(void **state)
{
    uint64_t id, more, hold;
    struct scene s = begin(*state);
    for (uint32_t rank = 0; rank < LATE; rank++)
        members_declared(s.workers[rank].end, members_declare(s.workers[rank].end, "v", NULL),
                         NULL);
    members_resize(s.workers[1].end, WORKERS + 1);
    more = members_declare(s.workers[2].end, "v", NULL);
    members_declared(s.workers[2].end, more, NULL);
    struct joining how_late = how(WORKERS);
    how_late.workers = WORKERS + 1;
    struct member late = members_join(*state, how_late);
    id = members_declare(late.end, "w", NULL);
    hold = take_hold(&s, 1);
    expect_served(&s, ALL);
    for (uint32_t rank = 0; rank < LATE; rank++)
        members_declared(s.workers[rank].end, members_declare(s.workers[rank].end, "u", NULL),
                         NULL);
    more = members_declare(s.workers[2].end, "u", NULL);
    expect_let_go(&s, 1, hold);
    members_declared(s.workers[2].end, more, NULL);
    members_declared(late.end, id, NULL);
    kept_log_expect(" has not reached the end of an iteration within ");
}

static void the_rank_is_held_until_the_late_worker_has_declared_all_tensors(void **state)
{
    uint64_t id;
    struct scene s = begin(*state);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        members_declared(s.workers[rank].end, members_declare(s.workers[rank].end, "v", NULL),
                         NULL);
    end_leave(s.workers[2].end);
    message_free(end_expect(s.workers[0].end, BODY(ROUTE_CHANGE)));
    s.workers[2] = members_join(*state, how(2));
    id = members_declare(s.workers[2].end, "w", NULL);
    uint64_t hold = take_hold(&s, 0);
    say(&s, 0, hold, GRADPOOL__WIRE__HOLD_STATE__HOLD_ENDED);
    members_declared(s.workers[2].end, id, NULL);
    end_expect_none(s.workers[0].end, BODY(HOLD));
    id = members_declare(s.workers[2].end, "v", NULL);
    members_declared(s.workers[2].end, id, NULL);
    expect_let_go(&s, 0, hold);
}

/* Orders a snapshot as an operator. The service sends a hold to rank 0. */
static uint64_t begin_snapshot(struct rig *rig, struct scene *s)
{
    WIRE(SnapshotRequest) ask = GRADPOOL__WIRE__SNAPSHOT_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    struct job *job = jobs_find_id(rig->coordinator->service, s->workers[0].job);
    struct end *asker = rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    jobs_tensor_named(job, "w")->terms.rule = UPDATE_SGD;
    ask.job = (char *)MEMBERS_JOB;
    request.body_case = BODY(SNAPSHOT_REQUEST);
    request.snapshot_request = &ask;
    end_send(asker, &request);
    return take_hold_of(s, 0, GRADPOOL__WIRE__HOLD_SCOPE__HOLD_UPDATES);
}

static void a_snapshot_that_holds_a_rank_gives_way(void **state)
{
    struct rig *rig = *state;
    struct scene s = begin(rig);
    end_leave(s.workers[2].end);
    expect_served(&s, LEFT);
    uint64_t first = begin_snapshot(rig, &s);
    s.workers[2] = members_join(rig, how(2));
    struct terms terms = {.rule = UPDATE_SGD};
    uint64_t id = members_declare(s.workers[2].end, "w", &terms);
    expect_let_go(&s, 0, first);
    uint64_t hold = take_hold(&s, 0);
    say(&s, 0, hold, GRADPOOL__WIRE__HOLD_STATE__HOLD_ENDED);
    members_declared(s.workers[2].end, id, NULL);
    expect_let_go(&s, 0, hold);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_late_worker_enters_when_a_rank_has_ended_an_iteration),
        CASE(a_late_worker_enters_at_once_where_iterations_have_no_end),
        CASE(a_leaving_rank_is_not_awaited_with_late_workers),
        CASE(in_a_job_with_steps_a_late_worker_waits_until_a_rank_can_be_held),
        CASE(in_a_job_with_steps_a_leave_does_not_let_a_late_worker_enter),
        CASE(in_a_job_with_steps_a_late_worker_enters_when_all_others_have_left),
        CASE(no_rank_is_held_before_the_late_worker_asks_to_enter),
        CASE(lanes_keep_the_connections_of_a_late_worker),
        CASE(others_leave_without_a_late_worker_that_has_not_asked),
        CASE(a_late_worker_that_goes_before_its_entry_holds_nobody),
        CASE(a_restarted_coordinator_waits_for_the_request_to_enter),
        CASE(a_late_worker_without_a_connection_does_not_enter),
        CASE(a_worker_that_joins_a_job_without_steps_is_added_when_it_declares),
        CASE(a_hold_does_not_wait_for_another_late_worker),
        CASE(a_late_worker_enters_new_tensors_of_others_at_the_same_step),
        CASE(another_rank_gets_the_hold_when_the_held_rank_is_released),
        CASE(a_training_rank_that_declares_more_does_not_wait_for_late_workers),
        CASE(the_rank_is_held_until_the_late_worker_has_declared_all_tensors),
        CASE(a_snapshot_that_holds_a_rank_gives_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
