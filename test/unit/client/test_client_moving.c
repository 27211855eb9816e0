/* Tests the client when lanes release pieces during training (L19). No connection is closed, rounds
 * continue at the new owner, and late messages of the former owner have no effect. Also tests a
 * lane that cannot be reached for a moment (L38). */
#include "test/unit/client/client_fixture.h"

#include "svc/base/clock.h"
#include "test/lib/kept_log.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

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

static void release(uint32_t from, uint32_t to)
{
    script_lock(&rig);
    rig.releases = true;
    rig.holds_results = false;
    script_move(&rig, from, to);
    script_unlock(&rig);
}

/* The connections of both ranks to a lane. */
struct ends {
    struct fabric_conn *conn[WORKERS];
};

static struct ends ends_of(uint32_t lane)
{
    struct ends ends;
    script_lock(&rig);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ends.conn[rank] = rig.lanes[lane].workers[rank].conn;
    script_unlock(&rig);
    assert_non_null(ends.conn[0]);
    return ends;
}

static void expect_ends(uint32_t lane, struct ends before)
{
    struct ends now = ends_of(lane);
    assert_memory_equal(&before, &now, sizeof now);
}

static void a_lane_that_released_a_piece_keeps_its_connections(void **state)
{
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    struct ends before = ends_of(0);
    release(0, 1);
    for (uint64_t round = 2; round < 5; round++)
        run_round(t, round);
    expect_ends(0, before);
    struct ends next = ends_of(1);
    release(1, 0);
    run_round(t, 5);
    expect_ends(0, before);
    expect_ends(1, next);
}

static void a_lost_lane_is_left_before_the_next_lane_gets_a_record(void **state)
{
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    script_lock(&rig);
    script_move(&rig, 0, 1); /* the lane has not reported the release yet */
    script_unlock(&rig);
    run_round(t, 2);
    script_lock(&rig);
    assert_null(rig.lanes[0].workers[0].conn);
    assert_null(rig.lanes[0].workers[1].conn);
    script_unlock(&rig);
}

/* The coordinator sends the worker only the current lanes of the pieces (K20). */
static void a_worker_that_missed_a_loss_before_a_move_leaves_the_lost_lane(void **state)
{
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    script_lock(&rig);
    rig.is_mute = true;
    script_move(&rig, 0, 1);
    rig.is_mute = false;
    rig.releases = true;
    script_move(&rig, 1, 2);
    script_unlock(&rig);
    run_round(t, 2);
    script_lock(&rig);
    assert_null(rig.lanes[0].workers[0].conn);
    assert_null(rig.lanes[0].workers[1].conn);
    script_unlock(&rig);
    struct ends before = ends_of(2);
    release(2, 1);
    run_round(t, 3);
    expect_ends(2, before);
}

/* Waits for announcements of the round. The number of announcements is unknown, because a rank
 * without a commit repeats its announcement. */
static void wait_announced(uint32_t lane, uint64_t round)
{
    script_lock(&rig);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        while (!heard(rank, round) || heard(rank, round)->lane != lane)
            script_wait(&rig);
    }
    script_unlock(&rig);
}

static void a_round_that_waits_is_announced_to_the_next_lane(void **state)
{
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    script_lock(&rig);
    rig.holds_results = true;
    script_unlock(&rig);
    push(0, 2);
    push(1, 2);
    wait_announced(0, 2);
    struct ends before = ends_of(0);
    script_lock(&rig);
    uint32_t former = heard(0, 2)->ready.word;
    script_unlock(&rig);
    release(0, 1);
    wait_announced(1, 2);
    script_lock(&rig);
    assert_int_equal(heard(0, 2)->ready.standing, RECORD_ANNOUNCE);
    assert_int_not_equal(heard(0, 2)->ready.word, former);
    script_lane_say_error(&rig, 0, 0, former, -EINVAL, "of the former owner");
    script_unlock(&rig);
    finish(2);
    run_round(t, 3);
    expect_ends(0, before);
}

static void remaining_pieces_continue_on_the_lane_that_released_others(void **state)
{
    script_lock(&rig);
    rig.pieces_per_tensor = 4;
    rig.lanes_used = 2;
    script_unlock(&rig);
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    struct ends before = ends_of(0);
    release(1, 2);
    for (uint64_t round = 2; round < 5; round++)
        run_round(t, round);
    expect_ends(0, before);
}

static void the_end_of_a_lane_without_pieces_means_nothing(void **state)
{
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    release(0, 1);
    run_round(t, 2);
    script_lock(&rig);
    script_kill_lane(&rig, 0);
    script_unlock(&rig);
    for (uint64_t round = 3; round < 6; round++)
        run_round(t, round);
}

/* Runs rounds until every rank has detected the end of its connection to the former lane. A rank
 * checks shared memory only while the rank waits. Returns the number of the next round. */
static uint64_t round_after_the_ends(uint64_t round)
{
    uint64_t deadline_ns = clock_now_ns() + WAIT_MS * NS_PER_MS;
    while (kept_log_count(" has closed the connection") < WORKERS) {
        assert_true(clock_now_ns() < deadline_ns);
        run_round(t, round++);
    }
    return round;
}

static void a_lane_without_the_job_does_not_get_its_old_ticket(void **state)
{
    kept_log_begin();
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    script_lock(&rig);
    script_lane_give_ticket(&rig, 0, 0);
    script_unlock(&rig);
    run_round(t, 2); /* requests a ticket */
    release(0, 1);
    run_round(t, 3);
    script_lock(&rig);
    for (int rank = 0; rank < 2; rank++)
        fabric_disconnect(rig.lanes[0].workers[rank].conn);
    while (rig.lanes[0].workers[0].conn || rig.lanes[0].workers[1].conn)
        script_wait(&rig);
    rig.tickets_seen = 0;
    script_unlock(&rig);
    uint64_t next = round_after_the_ends(4);
    release(1, 0);
    run_round(t, next);
    script_lock(&rig);
    for (uint64_t seen = rig.tickets_seen; seen; seen >>= 8)
        assert_int_not_equal(seen & 0xff, 'l');
    assert_true(rig.tickets_seen > 0xff);
    script_unlock(&rig);
}

/* The client must repeat the request, because the lane may become reachable again, and the
 * coordinator sends no route to another lane. */
static void the_request_for_a_refused_ticket_is_repeated(void **state)
{
    script_lock(&rig);
    rig.not_now = 3;
    script_unlock(&rig);
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    script_lock(&rig);
    assert_int_equal(rig.not_now, 0);
    assert_int_equal(rig.tickets, 2);
    script_unlock(&rig);
}

/* The client must try again, because the coordinator sends no route to another lane. */
static void a_lane_that_cannot_be_reached_is_tried_again(void **state)
{
    script_lock(&rig);
    rig.astray = 5;
    script_unlock(&rig);
    ok(gp_tensor_declare(jobs[0], "w", GP_F32, ELEMENTS, &t[0]));
    script_lock(&rig);
    assert_int_equal(rig.astray, 0);
    assert_int_equal(rig.tickets, 6);
    script_unlock(&rig);
    ok(gp_tensor_declare(jobs[1], "w", GP_F32, ELEMENTS, &t[1]));
    run_round(t, 1);
}

/* The last tensor on the lane was undeclared, and the lane has dropped the job. No call polls the
 * fabric, so the connection still appears open. */
static void an_undetected_end_of_an_unused_connection_does_no_harm(void **state)
{
    gp_tensor *next[WORKERS];
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    for (int rank = 0; rank < WORKERS; rank++)
        ok(gp_tensor_undeclare(t[rank]));
    script_lock(&rig);
    for (int rank = 0; rank < WORKERS; rank++)
        fabric_disconnect(rig.lanes[0].workers[rank].conn);
    while (rig.lanes[0].workers[0].conn || rig.lanes[0].workers[1].conn)
        script_wait(&rig);
    script_unlock(&rig);
    declare("v", ELEMENTS, next);
    for (int rank = 0; rank < WORKERS; rank++)
        ok(gp_push_pull(next[rank], gradient[rank], result[rank], GP_MEAN, &q[rank]));
    for (int i = 0; i < WAIT_MS / 10 && gp_poll(q[0], 0) + gp_poll(q[1], 0) < WORKERS; i++)
        gp_poll(q[i % WORKERS], 10); /* both ranks must detect the end */
    for (int rank = 0; rank < WORKERS; rank++)
        ok(gp_wait(q[rank], WAIT_MS));
}

/* Between two pushes no call polls the fabric. Route changes are handled at once. */
static void a_piece_that_comes_back_before_its_old_connection_ends_is_announced_anew(void **state)
{
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    struct ends before = ends_of(0);
    script_lock(&rig);
    uint32_t accepted = rig.lanes[0].accepted;
    rig.releases = true;
    script_move(&rig, 0, 1);
    for (int rank = 0; rank < 2; rank++)
        fabric_disconnect(before.conn[rank]); /* the lane has dropped the job */
    script_move(&rig, 1, 0);
    script_unlock(&rig);
    for (uint64_t round = 2; round < 5; round++)
        run_round(t, round);
    script_lock(&rig);
    assert_int_equal(rig.lanes[0].accepted, accepted + WORKERS);
    script_unlock(&rig);
}

/* The new lane needs both sets, because another tensor may be one round behind (W13). */
static void a_new_lane_gets_the_last_two_chosen_sets(void **state)
{
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    script_lock(&rig);
    for (uint64_t round = 1; round <= 3; round++)
        script_lane_say_chosen(&rig, 0, 0, round, 3);
    script_lane_say_chosen(
        &rig, 0, 0, 2,
        1); /* a later message with a different set for the same round has no effect */
    script_unlock(&rig);
    run_round(t, 2);
    release(0, 1);
    run_round(t, 3);
    script_lock(&rig);
    /* lane 0 itself has decided the sets, so no rank sends a set to lane 0 */
    assert_true(rig.chosen_heard[0] == 0);
    assert_true(rig.chosen_heard[1] == 0x0203);
    script_unlock(&rig);
}

static void followers_end_with_the_leading_tensor(void **state)
{
    gp_tensor_spec specs[] = {
        {.name = "leads",
         .dtype = GP_F32,
         .elements = 1,
         .quorum = GP_FIRST,
         .bound = 2,
         .flags = GP_LEADS},
        {.name = "follows", .dtype = GP_F32, .elements = ELEMENTS, .quorum = GP_CHOSEN},
        {.name = "alone", .dtype = GP_F32, .elements = ELEMENTS}};
    gp_tensor *tensors[3];
    ok(gp_tensors_declare(jobs[0], specs, 3, tensors));
    ok(gp_push_pull(tensors[1], gradient[0], result[0], GP_MEAN, &q[0]));
    script_lock(&rig);
    script_fail_tensor(&rig, 1, -EOWNERDEAD, "tensor 'leads': its result was lost");
    script_unlock(&rig);
    failed(gp_wait(q[0], WAIT_MS), -EOWNERDEAD, "'leads'", NULL);
    failed(gp_push_pull(tensors[1], gradient[0], result[0], GP_MEAN, &q[0]), -EOWNERDEAD, NULL);
    ok(gp_push_pull(tensors[2], gradient[0], result[0], GP_MEAN, &q[0]));
}

/* Returns the first READY of rank 0 to lane 1, also if rank 1 has sent a later one. NULL: none has
 * arrived. Needs the rig's lock. */
static const struct record_ready *heard_by_next_owner(void)
{
    for (uint32_t i = 0; i < rig.heard_count; i++) {
        if (rig.heard[i].lane == 1 && rig.heard[i].rank == 0)
            return &rig.heard[i].ready;
    }
    return NULL;
}

/* Moves the piece. Checks that rank 0 sends this standing to the next owner, and no memory of the
 * round, which the caller may have written since the failure (L80). */
static void move_failed(uint8_t standing)
{
    release(0, 1);
    script_lock(&rig);
    while (!heard_by_next_owner())
        script_wait(&rig);
    const struct record_ready *said = heard_by_next_owner();
    assert_int_equal(said->standing, standing);
    assert_int_equal(said->round, RECORD_ROUND_NONE);
    assert_int_equal(said->outputs, 0);
    assert_int_equal(said->input_bytes, 0);
    script_unlock(&rig);
}

/* A lane reports an error to rank 0 alone, and the piece moves. */
static void fail_and_move(int code, uint8_t standing)
{
    declare("w", ELEMENTS, t);
    push(0, 1);
    script_lock(&rig);
    while (!heard(0, 1))
        script_wait(&rig);
    script_lane_say_error(&rig, 0, 0, heard(0, 1)->ready.word, code, "failed on its lane");
    script_unlock(&rig);
    failed(gp_wait(q[0], WAIT_MS), code, "failed on its lane", NULL);
    move_failed(standing);
}

static void a_rank_that_knows_a_loss_reports_it_to_the_next_owner(void **state)
{
    fail_and_move(-EOWNERDEAD, RECORD_FAILED);
}

static void a_failed_round_is_not_announced_to_the_next_owner(void **state)
{
    fail_and_move(-EINVAL, RECORD_IDLE);
}

static void lent_memory_of_a_broken_link_is_not_announced_to_the_next_owner(void **state)
{
    declare("w", ELEMENTS, t);
    float *own = lent(0, ELEMENTS);
    ok(gp_push_pull(t[0], own, own, GP_MEAN, &q[0]));
    script_lock(&rig);
    while (!heard(0, 1))
        script_wait(&rig);
    script_lane_babble(&rig, 0, 0);
    script_unlock(&rig);
    failed(gp_wait(q[0], WAIT_MS), -EBADMSG, "lane 0 of ", NULL);
    move_failed(RECORD_IDLE);
    failed(gp_push_pull(t[0], own, own, GP_MEAN, &q[0]), -EBADMSG, "lane 0 of ", NULL);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_start, fixture_stop)
int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_lane_that_released_a_piece_keeps_its_connections),
        CASE(a_lost_lane_is_left_before_the_next_lane_gets_a_record),
        CASE(a_worker_that_missed_a_loss_before_a_move_leaves_the_lost_lane),
        CASE(a_round_that_waits_is_announced_to_the_next_lane),
        CASE(remaining_pieces_continue_on_the_lane_that_released_others),
        CASE(the_end_of_a_lane_without_pieces_means_nothing),
        CASE(the_request_for_a_refused_ticket_is_repeated),
        CASE(a_lane_that_cannot_be_reached_is_tried_again),
        CASE(an_undetected_end_of_an_unused_connection_does_no_harm),
        CASE(a_piece_that_comes_back_before_its_old_connection_ends_is_announced_anew),
        CASE(a_lane_without_the_job_does_not_get_its_old_ticket),
        CASE(a_new_lane_gets_the_last_two_chosen_sets),
        CASE(followers_end_with_the_leading_tensor),
        CASE(a_rank_that_knows_a_loss_reports_it_to_the_next_owner),
        CASE(a_failed_round_is_not_announced_to_the_next_owner),
        CASE(lent_memory_of_a_broken_link_is_not_announced_to_the_next_owner),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
