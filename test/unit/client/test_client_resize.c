/* Tests the client of an elastic job (L20, L21, L29): messages about the membership, the effect of
 * a change on rounds in each state, and messages that the client ignores. */
#include "client/gradpool_elastic.h"
#include "client/lib/job/tensor.h"
#include "svc/base/clock.h"
#include "test/unit/client/client_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ELEMENTS 1000
#define MOST 4
#define PIECES 4
#define LEAVE_STEP_NS NS_PER_S /* longest time for which a leave waits for commits, as in leave.c */
/* deadline of calls in ms; answers of the service arrive earlier, and calls without an answer time
 * out */
#define ANSWER_MS 500

static gp_tensor *t[WORKERS];
static gp_request *q[WORKERS];
static float gradient[WORKERS][ELEMENTS], result[WORKERS][ELEMENTS];
static gp_client *late_client;
static gp_job *late;

static void join(gp_client **client, gp_job **job, uint32_t rank)
{
    gp_job_spec spec = {.name = "job",
                        .rank = rank,
                        .workers = rank < WORKERS ? WORKERS : rank + 1,
                        .workers_max = MOST};
    ok(gp_connect(rig.endpoint, NULL, client));
    ok(gp_job_join(*client, &spec, job));
}

static int start(void **state)
{
    fixture_start_alone(state);
    late_client = NULL;
    rig.workers_max = MOST;
    rig.members = 3;
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        join(&clients[rank], &jobs[rank], rank);
    return 0;
}

static int stop(void **state)
{
    gp_disconnect(late_client);
    return fixture_stop(state);
}

/* --- messages about the membership --- */

static void tell(uint32_t version, uint32_t wanted, uint64_t ranks)
{
    script_lock(&rig);
    script_tell_members(&rig, version, wanted, ranks, 0);
    script_unlock(&rig);
}

static gp_membership membership(void)
{
    gp_membership m;
    ok(gp_job_membership(jobs[0], &m));
    return m;
}

static void await_version(uint32_t version)
{
    uint64_t deadline_ns = clock_now_ns() + WAIT_MS * NS_PER_MS;
    while (membership().version != version) {
        assert_true(clock_now_ns() < deadline_ns);
        sched_yield();
    }
}

static void before_any_membership_message_the_initial_ranks_are_members(void **state)
{
    gp_membership m = membership();
    assert_int_equal(m.version, 0);
    assert_int_equal(m.workers, WORKERS);
    assert_int_equal(m.wanted, WORKERS);
    assert_true(m.ranks[0] == 3);
}

static void the_newest_membership_counts_and_only_ranks_that_the_job_may_have(void **state)
{
    tell(5, 3, 0xf7);
    await_version(5);
    assert_int_equal(membership().workers, 3); /* number of members among ranks 0 to 3 */
    assert_int_equal(gp_job_workers(jobs[0]), 3);
    script_lock(&rig);
    script_tell_members(&rig, 4, 2, 3, 0); /* an old version of the membership has no effect */
    /* a set with another number of bytes, as in messages of another version of gradpool */
    script_tell_members(&rig, 9, 1, 1, 8);
    script_tell_members(&rig, 5, 4, 15, 0); /* repeated, as after a restart of the coordinator */
    script_tell_members(&rig, 6, 2, 3, 0);
    script_unlock(&rig);
    await_version(6);
    assert_int_equal(membership().wanted, 2);
}

static void a_membership_call_without_an_argument_is_refused(void **state)
{
    gp_membership m;
    failed(gp_job_membership(NULL, &m), -EINVAL, NULL);
    failed(gp_job_membership(jobs[0], NULL), -EINVAL, "ret_membership is NULL", NULL);
    failed(gp_job_resize(NULL, 2, 0), -EINVAL, NULL);
}

/* --- resize requests --- */

static void a_refused_resize_returns_the_text_of_the_service(void **state)
{
    script_lock(&rig);
    rig.resize_failure = -EOPNOTSUPP;
    rig.resize_text = "job job keeps its workers";
    script_unlock(&rig);
    failed(gp_job_resize(jobs[0], 3, WAIT_MS), -EOPNOTSUPP, "keeps its workers", NULL);
}

static void a_service_that_does_not_answer_is_named_at_the_deadline(void **state)
{
    script_lock(&rig);
    rig.ignores_resizes = true;
    script_unlock(&rig);
    failed(gp_job_resize(jobs[0], 3, SHORT_MS), -ETIMEDOUT, "has not answered after 50 ms", NULL);
}

static void ranks_that_do_not_come_are_named_at_the_deadline(void **state)
{
    tell(1, 4, 3);
    UNTIL_TIMED_OUT(gp_job_resize(jobs[0], 4, ANSWER_MS),
                    "workers after 500 ms: rank 2 (has not joined), 3 (has not joined); look at "
                    "these ranks, or raise timeout_ms")
}

static void ranks_that_do_not_go_are_named_but_oneself(void **state)
{
    tell(1, 1, 3);
    UNTIL_TIMED_OUT(gp_job_resize(jobs[0], 1, ANSWER_MS), "rank 1 (has not left)")
    /* rank 1 itself leaves only when its program calls gp_job_leave() */
    ok(gp_job_resize(jobs[1], 1, WAIT_MS));
}

struct resizer {
    pthread_t thread;
    uint32_t workers;
    int result;
    char text[256];
};

static void *resize_in_thread(void *context)
{
    struct resizer *r = context;
    r->result = gp_job_resize(jobs[0], r->workers, WAIT_MS);
    strncpy(r->text, gp_last_error(), sizeof r->text - 1);
    return NULL;
}

/* Sends a resize request. Returns when the service has received it. */
static void begin_resize(struct resizer *r, uint32_t workers)
{
    *r = (struct resizer){.workers = workers};
    assert_int_equal(pthread_create(&r->thread, NULL, resize_in_thread, r), 0);
    script_lock(&rig);
    while (rig.resizes == 0)
        script_wait(&rig);
    assert_int_equal(rig.wanted, workers);
    script_unlock(&rig);
}

static void a_resize_returns_when_all_workers_have_joined(void **state)
{
    struct resizer r;
    begin_resize(&r, 3);
    tell(1, 3, 3);
    tell(2, 3, 7);
    pthread_join(r.thread, NULL);
    assert_int_equal(r.result, 0);
}

static void a_resize_by_another_rank_ends_the_wait(void **state)
{
    struct resizer r;
    begin_resize(&r, 3);
    tell(1, 3, 3);
    tell(2, 4, 3);
    pthread_join(r.thread, NULL);
    assert_int_equal(r.result, -ECANCELED);
    assert_non_null(strstr(r.text, "another rank's resize to 4"));
}

static void the_failure_of_the_job_ends_the_wait(void **state)
{
    struct resizer r;
    begin_resize(&r, 3);
    script_lock(&rig);
    script_fail_job(&rig, -ECONNRESET, "rank 1 is gone");
    script_unlock(&rig);
    pthread_join(r.thread, NULL);
    assert_int_equal(r.result, -ECONNRESET);
    assert_non_null(strstr(r.text, "rank 1 is gone"));
}

static void a_resize_waits_until_tensors_have_their_new_ranks(void **state)
{
    struct resizer r;
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    tell(1, 3, 7);
    await_version(1);
    UNTIL_TIMED_OUT(gp_job_resize(jobs[0], 3, ANSWER_MS),
                    "rank 2 has joined, but has not declared tensor 'w'")
    script_lock(&rig);
    rig.resizes = 0;
    script_unlock(&rig);
    begin_resize(&r, 3);
    script_lock(&rig);
    script_regroup(&rig, 7);
    script_unlock(&rig);
    pthread_join(r.thread, NULL);
    assert_int_equal(r.result, 0);
}

/* --- the effect of a change on a round (L20) --- */

static void push(uint32_t rank, uint64_t round)
{
    fill(gradient[rank], ELEMENTS, rank, round);
    ok(gp_push_pull(t[rank], gradient[rank], result[rank], GP_MEAN, &q[rank]));
}

static void regroup(uint64_t ranks)
{
    script_lock(&rig);
    script_regroup(&rig, ranks);
    script_unlock(&rig);
}

static void expect_alone(uint64_t round)
{
    ok(gp_wait(q[0], WAIT_MS));
    for (size_t i = 0; i < ELEMENTS; i++)
        assert_true(result[0][i] == value(0, round, i));
}

static uint8_t standing_of(uint32_t rank, uint32_t piece, uint32_t epoch)
{
    uint8_t standing = UINT8_MAX;
    for (uint32_t i = 0; i < rig.heard_count; i++) {
        const struct script_heard *h = &rig.heard[i];
        if (h->rank == rank && h->ready.piece == piece && h->ready.epoch == epoch &&
            h->ready.standing != RECORD_KEEPS && standing == UINT8_MAX)
            standing = h->ready.standing;
    }
    return standing;
}

/* Waits for the rank's first announcement of the piece in this epoch, and returns its standing.
 * Skips records that report an earlier result that the rank has stored (L17). */
static uint8_t await_standing(uint32_t rank, uint32_t piece, uint32_t epoch)
{
    script_lock(&rig);
    while (standing_of(rank, piece, epoch) == UINT8_MAX)
        script_wait(&rig);
    uint8_t standing = standing_of(rank, piece, epoch);
    script_unlock(&rig);
    return standing;
}

static void expect_standing(uint32_t rank, uint32_t piece, uint32_t epoch, uint8_t standing)
{
    assert_int_equal(await_standing(rank, piece, epoch), standing);
}

static void a_change_between_rounds_needs_no_announcement(void **state)
{
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    regroup(3);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        uint8_t standing = await_standing(rank, 0, 2);
        /* HOLDS: the rank had not received the COMMIT yet */
        assert_true(standing == RECORD_IDLE || standing == RECORD_HOLDS);
    }
    run_round(t, 2);
}

static void a_round_whose_result_no_rank_has_is_announced_to_the_new_set(void **state)
{
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    push(0, 2); /* rank 1 does not push round 2 */
    wait_heard(3);
    regroup(1);
    expect_standing(0, 0, 2, RECORD_ANNOUNCE);
    expect_alone(2);
}

static void a_rank_with_a_complete_result_reports_holds(void **state)
{
    declare("w", ELEMENTS, t);
    script_lock(&rig);
    rig.holds_commits = true;
    script_unlock(&rig);
    push(0, 1);
    push(1, 1);
    ok(gp_wait(q[0], WAIT_MS));
    ok(gp_wait(q[1], WAIT_MS));
    script_lock(&rig);
    rig.holds_commits = false;
    script_unlock(&rig);
    regroup(1);
    expect_standing(0, 0, 2, RECORD_HOLDS);
    check_mean(result[0], ELEMENTS, 1);
    push(0, 2);
    expect_alone(2);
}

/* A rank reports the same standing for all pieces of a tensor (W15). */
static void a_landed_piece_of_an_incomplete_tensor_is_announced_again(void **state)
{
    script_lock(&rig);
    rig.pieces_per_tensor = PIECES;
    rig.lanes_used = 2;
    rig.held_lanes = 2;
    script_unlock(&rig);
    declare("w", ELEMENTS, t);
    push(0, 1);
    push(1, 1);
    wait_heard(WORKERS * PIECES);
    script_lock(&rig);
    while (rig.pieces[0].round != 2 || rig.pieces[2].round != 2)
        script_wait(&rig); /* lane 0 has committed its two pieces */
    script_unlock(&rig);
    failed(gp_wait(q[0], SHORT_MS), -ETIMEDOUT, NULL);
    script_lock(&rig);
    rig.held_lanes = 0;
    script_unlock(&rig);
    regroup(1);
    for (uint32_t piece = 0; piece < PIECES; piece++)
        expect_standing(0, piece, 2, RECORD_ANNOUNCE);
    expect_alone(1);
}

static void a_repeated_route_sends_no_record(void **state)
{
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    regroup(3);
    run_round(t, 2);
    script_lock(&rig);
    uint32_t heard_before = rig.heard_count;
    script_tell_routes(&rig);
    script_tell_routes(&rig);
    script_unlock(&rig);
    run_round(t, 3);
    script_lock(&rig);
    assert_int_equal(rig.heard_count, heard_before + WORKERS);
    script_unlock(&rig);
}

static void a_message_of_the_former_epoch_is_dropped(void **state)
{
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    push(0, 2);
    wait_heard(3);
    script_lock(&rig);
    uint32_t former = heard(0, 2)->ready.word;
    rig.holds_results = true;
    script_unlock(&rig);
    regroup(1);
    expect_standing(0, 0, 2, RECORD_ANNOUNCE);
    script_lock(&rig);
    script_lane_say_error(&rig, 0, 0, former, -EINVAL, "of the set before");
    rig.holds_results = false;
    script_lane_resume(&rig);
    script_unlock(&rig);
    expect_alone(2);
}

static void blocks_that_are_counted_by_ranks_do_not_survive_another_set(void **state)
{
    static float all[WORKERS][WORKERS * ELEMENTS];
    const uint32_t pair[] = {0, 1};
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        gp_tensor_spec spec = {.name = "blocks",
                               .dtype = GP_F32,
                               .elements = ELEMENTS,
                               .ranks = pair,
                               .ranks_count = WORKERS};
        ok(gp_tensors_declare(jobs[rank], &spec, 1, &t[rank]));
    }
    ok(gp_push_pull(t[0], gradient[0], all[0], GP_GATHER, &q[0]));
    wait_heard(1);
    regroup(1);
    failed(gp_wait(q[0], WAIT_MS), -ECONNRESET, "'blocks' round 1", "its ranks have changed", NULL);
}

/* --- late workers (L21) --- */

static gp_tensor *join_late(void)
{
    gp_tensor *tensor;
    script_lock(&rig);
    /* the coordinator sends these ranks after the declaration of the late worker */
    script_regroup(&rig, 7);
    script_unlock(&rig);
    join(&late_client, &late, 2);
    ok(gp_tensor_declare(late, "w", GP_F32, ELEMENTS, &tensor));
    return tensor;
}

static void a_new_rank_requests_its_round_before_it_pushes(void **state)
{
    static float values[ELEMENTS];
    gp_request *request;
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    run_round(t, 2);
    script_lock(&rig);
    rig.holds_entries = true;
    script_unlock(&rig);
    gp_tensor *tensor = join_late();
    ok(gp_push_pull(tensor, values, values, GP_SUM, &request));
    expect_standing(2, 0, 2, RECORD_ENTERS);
    failed(gp_wait(request, SHORT_MS), -ETIMEDOUT, NULL);
    fill(gradient[0], ELEMENTS, 0, 3);
    fill(gradient[1], ELEMENTS, 1, 3);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_push_pull(t[rank], gradient[rank], result[rank], GP_SUM, &q[rank]));
    script_lock(&rig);
    rig.holds_entries = false;
    while (rig.pieces[0].is_recovering)
        script_wait(&rig);
    script_lane_welcome(&rig, &rig.pieces[0]);
    script_lane_welcome(&rig, &rig.pieces[0]); /* a repeated answer must have no effect */
    fabric_flush(rig.lanes[0].fabric);
    script_unlock(&rig);
    ok(gp_wait(request, WAIT_MS));
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_wait(q[rank], WAIT_MS));
    script_lock(&rig);
    assert_int_equal(heard(2, 3)->ready.standing, RECORD_ANNOUNCE);
    script_unlock(&rig);
    check_sum(values, ELEMENTS, 3);
}

static void a_rank_that_cannot_enter_gets_the_reason(void **state)
{
    static float values[ELEMENTS];
    gp_request *request;
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    script_lock(&rig);
    rig.holds_entries = true;
    script_unlock(&rig);
    gp_tensor *tensor = join_late();
    ok(gp_push_pull(tensor, values, values, GP_SUM, &request));
    expect_standing(2, 0, 2, RECORD_ENTERS);
    failed(gp_wait(request, SHORT_MS), -ETIMEDOUT, "'w' round 2", "no push from ranks 0, 1", NULL);
    script_lock(&rig);
    script_lane_say_error(&rig, 0, 2, rig.pieces[0].entering_word[2], -ENODATA, "no parameters");
    script_unlock(&rig);
    failed(gp_wait(request, WAIT_MS), -ENODATA, "'w'", "no parameters", NULL);
}

static void a_late_worker_waits_for_its_entry_until_the_deadline(void **state)
{
    const gp_deal deal = {.samples = 1, .epochs = 1, .batch = 1};
    gp_step step;
    join(&late_client, &late, 2);
    ok(gp_deal_declare(late, &deal, NULL, 0, NULL));
    failed(gp_step_begin(late, SHORT_MS, &step), -ETIMEDOUT,
           "job 'job': rank 2 has not entered all tensors after 50 ms; the other ranks have not ",
           "ended a step. Call gp_step_begin() again to continue waiting", NULL);
}

/* --- leaving --- */

static void a_worker_that_leaves_reports_its_last_rounds(void **state)
{
    gp_tensor *other[WORKERS];
    declare("w", ELEMENTS, t);
    declare("v", ELEMENTS, other);
    run_round(t, 1);
    run_round(t, 2);
    gp_job_leave(jobs[1]);
    script_lock(&rig);
    assert_int_equal(rig.settled_count, 1); /* "v" has had no round */
    assert_int_equal(rig.settled_round, 2);
    script_unlock(&rig);
}

static void of_an_open_round_the_round_before_is_reported(void **state)
{
    declare("w", ELEMENTS, t);
    run_round(t, 1);
    push(1, 2);
    gp_job_leave(jobs[1]);
    script_lock(&rig);
    assert_int_equal(rig.leaves, 1);
    assert_int_equal(rig.settled_count, 1);
    assert_int_equal(rig.settled_round, 1);
    script_unlock(&rig);
}

static void an_open_first_round_is_not_reported(void **state)
{
    declare("w", ELEMENTS, t);
    push(1, 1);
    gp_job_leave(jobs[1]);
    script_lock(&rig);
    assert_int_equal(rig.leaves, 1);
    assert_int_equal(rig.settled_count, 0);
    script_unlock(&rig);
}

/* Other ranks may lack the result of round 1. If this rank left at once, they would repeat the
 * round without this rank. */
static void a_rank_with_an_open_round_waits_for_the_commit_of_the_round_before(void **state)
{
    declare("w", ELEMENTS, t);
    script_lock(&rig);
    rig.holds_commits = true;
    script_unlock(&rig);
    run_round(t, 1);
    push(1, 2);
    uint64_t begun_ns = clock_now_ns();
    gp_job_leave(jobs[1]);
    assert_true(clock_now_ns() - begun_ns >= LEAVE_STEP_NS);
    script_lock(&rig);
    assert_int_equal(rig.settled_count, 0);
    script_unlock(&rig);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(before_any_membership_message_the_initial_ranks_are_members),
        CASE(the_newest_membership_counts_and_only_ranks_that_the_job_may_have),
        CASE(a_membership_call_without_an_argument_is_refused),
        CASE(a_refused_resize_returns_the_text_of_the_service),
        CASE(a_service_that_does_not_answer_is_named_at_the_deadline),
        CASE(ranks_that_do_not_come_are_named_at_the_deadline),
        CASE(ranks_that_do_not_go_are_named_but_oneself),
        CASE(a_resize_returns_when_all_workers_have_joined),
        CASE(a_resize_by_another_rank_ends_the_wait),
        CASE(the_failure_of_the_job_ends_the_wait),
        CASE(a_resize_waits_until_tensors_have_their_new_ranks),
        CASE(a_change_between_rounds_needs_no_announcement),
        CASE(a_round_whose_result_no_rank_has_is_announced_to_the_new_set),
        CASE(a_rank_with_a_complete_result_reports_holds),
        CASE(a_landed_piece_of_an_incomplete_tensor_is_announced_again),
        CASE(a_repeated_route_sends_no_record),
        CASE(a_message_of_the_former_epoch_is_dropped),
        CASE(blocks_that_are_counted_by_ranks_do_not_survive_another_set),
        CASE(a_new_rank_requests_its_round_before_it_pushes),
        CASE(a_rank_that_cannot_enter_gets_the_reason),
        CASE(a_late_worker_waits_for_its_entry_until_the_deadline),
        CASE(a_worker_that_leaves_reports_its_last_rounds),
        CASE(of_an_open_round_the_round_before_is_reported),
        CASE(an_open_first_round_is_not_reported),
        CASE(a_rank_with_an_open_round_waits_for_the_commit_of_the_round_before),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
