/* Tests the client under faults. An error must name the late rank, and must reach every waiting
 * call. A lost lane or coordinator delays rounds but changes no bits. */
#include "svc/base/clock.h"
#include "test/unit/client/client_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ELEMENTS 1000

static gp_tensor *t[WORKERS];
static gp_request *q[WORKERS];
static float gradient[WORKERS][ELEMENTS], result[WORKERS][ELEMENTS];

static void push(uint32_t rank, uint64_t round)
{
    fill(gradient[rank], ELEMENTS, rank, round);
    ok(gp_push_pull(t[rank], gradient[rank], result[rank], GP_MEAN, &q[rank]));
}

static void finish(uint64_t round)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        ok(gp_wait(q[rank], WAIT_MS));
        check_mean(result[rank], ELEMENTS, round);
    }
}

static void set(bool *knob, bool to)
{
    script_lock(&rig);
    *knob = to;
    script_unlock(&rig);
}

static void move(uint32_t from, uint32_t to)
{
    script_lock(&rig);
    script_kill_lane(&rig, from);
    script_move(&rig, from, to);
    script_unlock(&rig);
}

static void kill_lane(uint32_t lane)
{
    script_lock(&rig);
    script_kill_lane(&rig, lane);
    script_unlock(&rig);
}

/* ---- late ranks ---- */

static void a_push_that_one_rank_never_makes_is_reported_at_the_deadline(void **state)
{
    declare("fc.weight", ELEMENTS, t);
    run_round(t, 1);
    push(0, 2);
    failed(gp_wait(q[0], SHORT_MS), -ETIMEDOUT,
           "tensor 'fc.weight' round 2: ", "no push from rank 1 after 50 ms", NULL);
    push(1, 2);
    finish(2); /* the request is still valid */
}

static void the_late_tensor_of_a_group_is_named(void **state)
{
    static float values[WORKERS][2][ELEMENTS];
    gp_tensor *a[WORKERS], *b[WORKERS];
    gp_request *other;
    declare("a", ELEMENTS, a);
    declare("b", ELEMENTS, b);
    gp_item items[] = {{a[0], values[0][0], values[0][0]}, {b[0], values[0][1], values[0][1]}};
    ok(gp_push_pull_group(jobs[0], items, 2, GP_SUM, &q[0]));
    ok(gp_push_pull(a[1], values[1][0], values[1][0], GP_SUM, &other));
    ok(gp_wait(other, WAIT_MS));
    failed(gp_wait(q[0], SHORT_MS), -ETIMEDOUT, "'b' round 1", "rank 1", NULL);
}

static void a_lane_that_does_not_answer_is_named(void **state)
{
    declare("w", ELEMENTS, t);
    set(&rig.is_silent, true);
    push(0, 1);
    failed(gp_wait(q[0], SHORT_MS), -ETIMEDOUT, "'w' round 1",
           "lane 0 of aggregator 5 on node7 does not answer", NULL);
}

static void a_lane_that_is_slow_is_not_blamed_on_a_rank(void **state)
{
    declare("w", ELEMENTS, t);
    set(&rig.holds_results, true);
    push(0, 1);
    push(1, 1);
    failed(gp_wait(q[0], SHORT_MS), -ETIMEDOUT, "all ranks have pushed, lane 0",
           " has not finished", NULL);
}

/* ---- errors ---- */

static uint32_t word_of(uint32_t rank, uint64_t round)
{
    script_lock(&rig);
    while (!heard(rank, round))
        script_wait(&rig);
    uint32_t word = heard(rank, round)->ready.word;
    script_unlock(&rig);
    return word;
}

static void say_error(uint32_t rank, uint32_t word, int code, const char *text)
{
    script_lock(&rig);
    script_lane_say_error(&rig, 0, rank, word, code, text);
    script_unlock(&rig);
}

static void an_error_of_a_round_ends_its_request_and_later_pushes(void **state)
{
    gp_tensor *other[WORKERS];
    declare("w", ELEMENTS, t);
    declare("other", ELEMENTS, other);
    push(0, 1);
    say_error(0, word_of(0, 1), -EINVAL, "tensor 'w' round 1: rank 1 pushes sum, others mean");
    failed(gp_wait(q[0], WAIT_MS), -EINVAL, "rank 1 pushes sum, others mean", NULL);
    failed(gp_push_pull(t[0], gradient[0], result[0], GP_MEAN, &q[0]), -EINVAL, "rank 1", NULL);
    run_round(other, 1); /* the other job must continue */
}

static void an_error_that_names_no_tensor_gets_its_name(void **state)
{
    declare("w", ELEMENTS, t);
    push(0, 1);
    say_error(0, word_of(0, 1), -EPIPE, "rank 1 has left the job");
    failed(gp_wait(q[0], WAIT_MS), -EPIPE, "tensor 'w': rank 1 has left the job", NULL);
}

static void an_error_of_the_job_ends_open_and_later_requests(void **state)
{
    gp_tensor *other;
    declare("w", ELEMENTS, t);
    push(0, 1);
    word_of(0, 1);
    say_error(0, RECORD_WORD_NONE, -ECONNRESET, "rank 1 is gone");
    failed(gp_wait(q[0], WAIT_MS), -ECONNRESET, "rank 1 is gone", NULL);
    failed(gp_push_pull(t[0], gradient[0], result[0], GP_MEAN, &q[0]), -ECONNRESET, "rank 1", NULL);
    failed(gp_tensor_declare(jobs[0], "x", GP_F32, 1, &other), -ECONNRESET, "rank 1", NULL);
    failed(gp_barrier(jobs[0], WAIT_MS), -ECONNRESET, "rank 1", NULL);
}

static void a_received_result_survives_a_failing_job(void **state)
{
    declare("w", ELEMENTS, t);
    push(0, 1);
    push(1, 1);
    ok(gp_wait(q[1], WAIT_MS));
    script_lock(&rig);
    script_unlock(&rig);
    assert_int_equal(gp_poll(q[0], 0), 1);
    say_error(0, RECORD_WORD_NONE, -ECONNRESET, "rank 1 is gone");
    gp_poll(q[0], 0);
    ok(gp_wait(q[0], WAIT_MS));
    check_mean(result[0], ELEMENTS, 1);
}

static void a_stale_word_has_no_effect(void **state)
{
    declare("w", ELEMENTS, t);
    push(0, 1);
    uint32_t word = word_of(0, 1);
    say_error(0, word ^ 1, -EINVAL, "another generation");
    say_error(0, 0x00ffff00, -EINVAL, "a slot that does not exist");
    push(1, 1);
    finish(1);
    say_error(0, word, -EINVAL, "a round that is over");
    run_round(t, 2);
}

static void a_failure_from_the_coordinator_fails_the_tensor_on_every_rank(void **state)
{
    gp_tensor *other[WORKERS];
    declare("w", ELEMENTS, t);
    declare("other", ELEMENTS, other);
    set(&rig.holds_results, true);
    push(0, 1);
    push(1, 1);
    script_lock(&rig);
    script_fail_tensor(&rig, 1, -EINVAL, "tensor 'w': rank 0 declares 1000 elements, rank 1 999");
    script_unlock(&rig);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        failed(gp_wait(q[rank], WAIT_MS), -EINVAL, "rank 0 declares 1000", "rank 1 999", NULL);
        failed(gp_push_pull(t[rank], gradient[rank], result[rank], GP_MEAN, &q[rank]), -EINVAL,
               "rank 1 999", NULL);
    }
    set(&rig.holds_results, false);
    run_round(other, 1);
}

static void a_failure_from_the_coordinator_ends_the_job(void **state)
{
    declare("w", ELEMENTS, t);
    push(0, 1);
    script_lock(&rig);
    script_fail_job(&rig, -ECONNRESET, "rank 1 of job job (node8, pid 77) is gone");
    script_unlock(&rig);
    failed(gp_wait(q[0], WAIT_MS), -ECONNRESET, "rank 1", "pid 77", NULL);
}

static void a_refused_declare_leaves_nothing_behind(void **state)
{
    script_lock(&rig);
    rig.declare_failure = -EINVAL;
    rig.declare_text = "tensor 'w': rank 1 declares 5 elements, others 1000";
    script_unlock(&rig);
    failed(gp_tensor_declare(jobs[0], "w", GP_F32, 1000, &t[0]), -EINVAL, "rank 1 declares 5",
           NULL);
    script_lock(&rig);
    rig.declare_failure = 0;
    script_unlock(&rig);
    declare("w", 5, t);
    run_round(t, 1);
}

/* ---- connections ---- */

static void a_refused_ticket_is_replaced_once(void **state)
{
    script_lock(&rig);
    rig.refusals = 1;
    script_unlock(&rig);
    ok(gp_tensor_declare(jobs[0], "w", GP_F32, ELEMENTS, &t[0]));
    ok(gp_tensor_declare(jobs[1], "w", GP_F32, ELEMENTS, &t[1]));
    script_lock(&rig);
    assert_int_equal(rig.tickets, 3);
    script_unlock(&rig);
    run_round(t, 1);
}

static void the_error_of_a_worker_refused_twice_names_the_lane(void **state)
{
    script_lock(&rig);
    rig.refusals = 2;
    script_unlock(&rig);
    failed(gp_tensor_declare(jobs[0], "w", GP_F32, ELEMENTS, &t[0]), -EACCES,
           "lane 0 of aggregator 5 on node7 refuses rank 0", NULL);
    declare("w", ELEMENTS, t); /* a second call tries again */
    run_round(t, 1);
}

/* ---- a lane dies ---- */

static void a_round_that_was_open_is_summed_again_by_the_new_lane(void **state)
{
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    set(&rig.holds_results, true);
    push(0, 2);
    push(1, 2);
    wait_heard(4);
    set(&rig.holds_results, false);
    move(0, 1);
    finish(2);
    script_lock(&rig);
    assert_int_equal(heard(0, 2)->lane, 1);
    assert_int_equal(heard(0, 2)->ready.standing, RECORD_ANNOUNCE);
    assert_int_equal(heard(0, 2)->ready.epoch, 2);
    script_unlock(&rig);
    run_round(t, 3);
}

static void a_result_that_one_rank_holds_is_given_to_the_rest(void **state)
{
    declare("w", ELEMENTS, t);
    script_lock(&rig);
    rig.holds_commits = true;
    rig.withheld = 1u << 1;
    script_unlock(&rig);
    push(0, 1);
    push(1, 1);
    ok(gp_wait(q[0], WAIT_MS));
    check_mean(result[0], ELEMENTS, 1);
    script_lock(&rig);
    rig.holds_commits = false;
    rig.withheld = 0;
    script_unlock(&rig);
    move(0, 1);
    ok(gp_wait(q[1], WAIT_MS));
    check_mean(result[1], ELEMENTS, 1);
    script_lock(&rig);
    assert_int_equal(heard(0, 1)->ready.standing, RECORD_HOLDS);
    assert_int_equal(heard(0, 1)->ready.outputs, 1);
    assert_int_equal(heard(1, 1)->ready.standing, RECORD_ANNOUNCE);
    script_unlock(&rig);
    run_round(t, 2);
}

static void idle_pieces_send_their_last_round_to_the_new_lane(void **state)
{
    gp_tensor *never[WORKERS];
    declare("w", ELEMENTS, t);
    declare("never", ELEMENTS, never);
    run_round(t, 1);
    run_round(t, 2);
    /* in this call the barrier polls the fabric and receives the last COMMIT */
    UNTIL_TIMED_OUT(gp_barrier(jobs[0], 300), "no push from rank 1")
    ok(gp_barrier(jobs[1], WAIT_MS));
    script_lock(&rig);
    uint32_t before = rig.heard_count;
    script_unlock(&rig);
    move(0, 1);
    wait_heard(before + 3 * WORKERS); /* no call is waiting: the progress threads announce */
    script_lock(&rig);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        assert_int_equal(heard(rank, 2)->ready.standing, RECORD_IDLE);
        assert_int_equal(heard(rank, 0)->ready.standing, RECORD_IDLE);
        assert_int_not_equal(heard(rank, 2)->ready.word, RECORD_WORD_NONE);
    }
    script_unlock(&rig);
    run_round(t, 3);
    run_round(never, 1);
}

static void only_the_pieces_of_the_lost_lane_move(void **state)
{
    script_lock(&rig);
    rig.pieces_per_tensor = 4;
    rig.lanes_used = 2;
    script_unlock(&rig);
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    set(&rig.holds_results, true);
    push(0, 2);
    push(1, 2);
    wait_heard(16);
    set(&rig.holds_results, false);
    move(0, 2);
    script_lock(&rig);
    script_lane_resume(&rig);
    script_unlock(&rig);
    finish(2);
    for (uint64_t round = 3; round < 6; round++)
        run_round(t, round);
}

static void a_returned_lane_is_entered_with_its_own_ticket(void **state)
{
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    script_lock(&rig);
    script_lane_give_ticket(&rig, 0, 0);
    script_unlock(&rig);
    run_round(t, 2); /* requests a ticket */
    run_round(t, 3);
    script_lock(&rig);
    rig.holds_results = true;
    script_unlock(&rig);
    push(0, 4);
    push(1, 4);
    wait_heard(8);
    script_lock(&rig);
    rig.holds_results = false;
    script_move(&rig, 0, 1); /* moves all pieces: lane 0 is empty, but not dead */
    script_unlock(&rig);
    finish(4);
    script_lock(&rig);
    rig.tickets_seen = 0;
    script_move(&rig, 1, 0);
    while (!rig.tickets_seen)
        script_wait(&rig);
    script_unlock(&rig);
    run_round(t, 5);
    script_lock(&rig);
    assert_true((rig.tickets_seen & 0xff) == 'l' || (rig.tickets_seen >> 8 & 0xff) == 'l');
    script_unlock(&rig);
}

static void a_lost_lane_without_successor_is_named_at_the_deadline(void **state)
{
    declare("w", ELEMENTS, t);
    push(0, 1);
    wait_heard(1);
    kill_lane(0);
    UNTIL_TIMED_OUT(
        gp_wait(q[0], 300),
        "'w' round 1: lane 0 of aggregator 5 on node7 is lost and no other has taken over")
    script_lock(&rig);
    script_drop_control(&rig);
    script_unlock(&rig);
    UNTIL_TIMED_OUT(gp_wait(q[0], 300), "cannot be reached")
    assert_non_null(strstr(gp_last_error(), "lane 0"));
    assert_non_null(strstr(gp_last_error(), "the coordinator at gradpool://127.0.0.1"));
}

static void a_stale_route_waits_for_the_new_one(void **state)
{
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    script_lock(&rig);
    rig.pieces[0].epoch = 2; /* the workers do not know this epoch yet */
    script_unlock(&rig);
    push(0, 2);
    push(1, 2);
    wait_heard(4);
    failed(gp_wait(q[0], SHORT_MS), -ETIMEDOUT, "lost", NULL);
    script_lock(&rig);
    script_move(&rig, 0, 1);
    script_unlock(&rig);
    finish(2);
}

/* The new route has the same lane, but another epoch. */
static void words_of_a_former_route_name_nothing_on_the_new_one(void **state)
{
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    set(&rig.holds_results, true);
    push(0, 2);
    push(1, 2);
    uint32_t former = word_of(0, 2);
    wait_heard(4);
    script_lock(&rig);
    script_move(&rig, 0, 0);
    script_unlock(&rig);
    wait_heard(6);
    assert_int_not_equal(word_of(0, 2), former);
    say_error(0, former, -EINVAL, "of the former owner");
    say_error(0, former, -ESTALE, "of the former owner");
    failed(gp_wait(q[0], SHORT_MS), -ETIMEDOUT, "all ranks have pushed", NULL);
    set(&rig.holds_results, false);
    script_lock(&rig);
    script_lane_resume(&rig);
    script_unlock(&rig);
    finish(2);
    run_round(t, 3);
}

/* An idle worker reports its last round to the new lane. If the report names an old route, it must
 * not affect other workers. */
static void a_standing_that_comes_too_late_does_not_end_the_job(void **state)
{
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    script_lock(&rig);
    uint32_t before = rig.heard_count;
    script_kill_lane(&rig, 0);
    script_move(&rig, 0, 1);
    rig.pieces[0].epoch++; /* the piece moves before the workers have reported */
    while (rig.heard_count < before + WORKERS)
        script_wait(&rig);
    script_move(&rig, 1, 2);
    script_unlock(&rig);
    run_round(t, 2);
}

/* ---- the coordinator dies ---- */

static void training_goes_on_without_a_coordinator(void **state)
{
    gp_tensor *later[WORKERS];
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    script_lock(&rig);
    script_drop_control(&rig);
    script_unlock(&rig);
    for (uint64_t round = 2; round < 20; round++)
        run_round(t, round);
    script_lock(&rig);
    script_restart_control(&rig);
    while (rig.resumed < WORKERS)
        script_wait(&rig);
    script_unlock(&rig);
    declare("later", ELEMENTS, later);
    run_round(later, 1);
    run_round(t, 20);
}

struct declare_call {
    pthread_t thread;
    gp_tensor *tensor;
    int result;
};

static void *declare_in_thread(void *context)
{
    struct declare_call *call = context;
    call->result = gp_tensor_declare(jobs[0], "w", GP_F32, ELEMENTS, &call->tensor);
    return NULL;
}

static void a_declare_survives_the_coordinators_restart(void **state)
{
    struct declare_call call = {0};
    set(&rig.ignores_declares, true);
    pthread_create(&call.thread, NULL, declare_in_thread, &call);
    script_lock(&rig);
    script_drop_control(&rig);
    script_wait(&rig); /* the rig's thread uses the port until it has read the change */
    rig.ignores_declares = false;
    script_restart_control(&rig);
    script_unlock(&rig);
    pthread_join(call.thread, NULL);
    assert_int_equal(call.result, 0);
    t[0] = call.tensor;
    ok(gp_tensor_declare(jobs[1], "w", GP_F32, ELEMENTS, &t[1]));
    run_round(t, 1);
}

static void a_declare_without_an_answer_ends_at_its_deadline(void **state)
{
    fixture_join(0, NULL);
    fixture_set_timeout(0, 300);
    script_lock(&rig);
    rig.ignores_declares = true;
    script_unlock(&rig);
    failed(gp_tensor_declare(jobs[0], "w", GP_F32, 1, &t[0]), -ETIMEDOUT, "has not answered", NULL);
    script_lock(&rig);
    script_drop_control(&rig);
    script_unlock(&rig);
    UNTIL_TIMED_OUT(gp_tensor_declare(jobs[0], "w", GP_F32, 1, &t[0]), "cannot be reached")
}

/* ---- refused workers ---- */

static void a_service_of_another_version_is_an_error_at_once(void **state)
{
    gp_client *client;
    script_lock(&rig);
    rig.version = 99;
    script_unlock(&rig);
    failed(gp_connect(rig.endpoint, NULL, &client), -EPROTO, "the coordinator at", rig.endpoint,
           NULL);
}

static void a_job_of_another_size_is_refused(void **state)
{
    gp_job *job;
    gp_job_spec spec = {.name = "job", .rank = 0, .workers = WORKERS + 1};
    ok(gp_connect(rig.endpoint, NULL, &clients[0]));
    failed(gp_job_join(clients[0], &spec, &job), -EPROTO, "another number of workers", NULL);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_start, fixture_stop)
#define ALONE(name) cmocka_unit_test_setup_teardown(name, fixture_start_alone, fixture_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_push_that_one_rank_never_makes_is_reported_at_the_deadline),
        CASE(the_late_tensor_of_a_group_is_named),
        CASE(a_lane_that_does_not_answer_is_named),
        CASE(a_lane_that_is_slow_is_not_blamed_on_a_rank),
        CASE(an_error_of_a_round_ends_its_request_and_later_pushes),
        CASE(an_error_that_names_no_tensor_gets_its_name),
        CASE(an_error_of_the_job_ends_open_and_later_requests),
        CASE(a_received_result_survives_a_failing_job),
        CASE(a_stale_word_has_no_effect),
        CASE(a_failure_from_the_coordinator_fails_the_tensor_on_every_rank),
        CASE(a_failure_from_the_coordinator_ends_the_job),
        CASE(a_refused_declare_leaves_nothing_behind),
        CASE(a_refused_ticket_is_replaced_once),
        CASE(the_error_of_a_worker_refused_twice_names_the_lane),
        CASE(a_round_that_was_open_is_summed_again_by_the_new_lane),
        CASE(a_result_that_one_rank_holds_is_given_to_the_rest),
        CASE(idle_pieces_send_their_last_round_to_the_new_lane),
        CASE(only_the_pieces_of_the_lost_lane_move),
        CASE(a_returned_lane_is_entered_with_its_own_ticket),
        CASE(a_lost_lane_without_successor_is_named_at_the_deadline),
        CASE(a_stale_route_waits_for_the_new_one),
        CASE(words_of_a_former_route_name_nothing_on_the_new_one),
        CASE(a_standing_that_comes_too_late_does_not_end_the_job),
        CASE(training_goes_on_without_a_coordinator),
        CASE(a_declare_survives_the_coordinators_restart),
        ALONE(a_declare_without_an_answer_ends_at_its_deadline),
        ALONE(a_service_of_another_version_is_an_error_at_once),
        ALONE(a_job_of_another_size_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
