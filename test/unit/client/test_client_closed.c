/* Tests CLOSED in the client of an elastic job. Rank 0 is late for a tensor of two pieces. The
 * ranks of the tensor change before both pieces are answered (W12, W15, L12). */
#include "client/lib/job/piece.h"
#include "svc/base/clock.h"
#include "test/unit/client/client_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ELEMENTS 1000
#define PIECES 2
#define NEWEST 3 /* round of the result that a late rank receives */

static gp_tensor *t;

/* Each piece is on its own lane. No lane sends a result before the test allows it. */
static int start(void **state)
{
    const gp_job_spec spec = {
        .name = "job", .rank = 0, .workers = WORKERS, .workers_max = WORKERS + 1};
    const gp_tensor_spec first = {
        .name = "w", .dtype = GP_F32, .elements = ELEMENTS, .quorum = GP_FIRST, .bound = 1};
    fixture_start_alone(state);
    rig.workers_max = WORKERS + 1;
    rig.members = 1;
    rig.pieces_per_tensor = rig.lanes_used = PIECES;
    rig.held_lanes = (1u << PIECES) - 1;
    ok(gp_connect(rig.endpoint, NULL, &clients[0]));
    ok(gp_job_join(clients[0], &spec, &jobs[0]));
    ok(gp_tensors_declare(jobs[0], &first, 1, &t));
    return 0;
}

/* Waits until a piece has no open round, and checks that the request has not ended. */
static void await_answer(gp_request *request, const struct piece *p)
{
    uint64_t deadline_ns = clock_now_ns() + WAIT_MS * NS_PER_MS;
    for (bool is_over = false; !is_over;) {
        failed(gp_wait(request, SHORT_MS), -ETIMEDOUT, NULL);
        assert_true(clock_now_ns() < deadline_ns);
        pthread_mutex_lock(&jobs[0]->lock);
        is_over = p->standing == PIECE_IDLE;
        pthread_mutex_unlock(&jobs[0]->lock);
    }
}

static uint32_t word_of(const struct piece *p)
{
    pthread_mutex_lock(&jobs[0]->lock);
    uint32_t word = p->word;
    pthread_mutex_unlock(&jobs[0]->lock);
    return word;
}

/* The gradient's memory is lent to the lanes, so the request ends only when the last piece is
 * answered. */
static void an_answered_piece_that_is_announced_again_is_counted_once(void **state)
{
    float *gradient = lent(0, ELEMENTS), *result = lent(0, ELEMENTS);
    gp_request *request;
    fill(gradient, ELEMENTS, 0, 1);
    ok(gp_push_pull(t, gradient, result, GP_MEAN, &request));
    wait_heard(PIECES);
    uint32_t word = word_of(&t->pieces[0]);
    script_lock(&rig);
    script_lane_say_closed(&rig, rig.pieces[0].lane, 0, word, NEWEST);
    script_unlock(&rig);
    await_answer(request, &t->pieces[0]);
    script_lock(&rig);
    script_regroup(&rig, 1);
    script_unlock(&rig);
    wait_heard(2 * PIECES);
    script_lock(&rig);
    rig.held_lanes &= ~(1u << rig.pieces[0].lane);
    script_lane_resume(&rig);
    script_unlock(&rig);
    await_answer(request, &t->pieces[0]);
    script_lock(&rig);
    rig.held_lanes = 0;
    script_lane_resume(&rig);
    script_unlock(&rig);
    ok(gp_wait(request, WAIT_MS));
    for (size_t i = 0; i < ELEMENTS; i++)
        assert_true(result[i] == value(0, 1, i));
    assert_int_equal(t->without_result, 0);
    assert_int_equal(t->without_commit, 0);
    assert_int_equal(t->round, NEWEST);
}

/* Rank 0 fetches a result, as a rank outside a set does. The first piece has a later result only,
 * so its results are fetched again. */
static void an_answer_with_a_later_round_is_not_counted_as_a_result(void **state)
{
    float *gradient = lent(0, ELEMENTS), *result = lent(0, ELEMENTS);
    gp_request *request;
    fill(gradient, ELEMENTS, 0, 1);
    ok(gp_push_pull(t, gradient, result, GP_MEAN, &request));
    wait_heard(PIECES);
    pthread_mutex_lock(&jobs[0]->lock);
    t->open.is_taking = true;
    pthread_mutex_unlock(&jobs[0]->lock);
    uint32_t word = word_of(&t->pieces[0]);
    script_lock(&rig);
    script_lane_say_closed(&rig, rig.pieces[0].lane, 0, word, NEWEST);
    script_unlock(&rig);
    await_answer(request, &t->pieces[0]);
    script_lock(&rig);
    script_regroup(&rig, 1);
    script_unlock(&rig);
    wait_heard(2 * PIECES);
    pthread_mutex_lock(&jobs[0]->lock);
    uint32_t results = t->without_result, commits = t->without_commit;
    pthread_mutex_unlock(&jobs[0]->lock);
    assert_int_equal(results, PIECES);
    assert_int_equal(commits, PIECES - 1);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_setup_teardown(an_answered_piece_that_is_announced_again_is_counted_once,
                                        start, fixture_stop),
        cmocka_unit_test_setup_teardown(an_answer_with_a_later_round_is_not_counted_as_a_result,
                                        start, fixture_stop),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
