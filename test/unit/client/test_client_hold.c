/* Tests a rank that is held at the end of an iteration (L33): rounds that continue, rounds that
 * wait, reports to the coordinator, and the end of the hold. */
#include "client/gradpool_elastic.h"
#include "client/lib/job/tensor.h"
#include "test/unit/client/client_fixture.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ELEMENTS 500
#define TENSORS 2
#define STATE(name) GRADPOOL__WIRE__HOLD_STATE__HOLD_##name
#define ROUNDS GRADPOOL__WIRE__HOLD_SCOPE__HOLD_ROUNDS
#define UPDATES GRADPOOL__WIRE__HOLD_SCOPE__HOLD_UPDATES

static gp_tensor *t[TENSORS][WORKERS];
static gp_request *q[TENSORS][WORKERS];
static float gradient[ELEMENTS], result[TENSORS][WORKERS][ELEMENTS];
static uint32_t done; /* number of rounds completed by both ranks */

static int start(void **state)
{
    done = 0;
    fixture_start(state);
    declare("first", ELEMENTS, t[0]);
    declare("second", ELEMENTS, t[1]);
    return 0;
}

/* --- rounds --- */

static void push(uint32_t at, uint32_t rank)
{
    ok(gp_push_pull(t[at][rank], gradient, result[at][rank], GP_SUM, &q[at][rank]));
}

static void push_both(uint32_t at)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        push(at, rank);
}

static void wait_both(uint32_t at)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_wait(q[at][rank], WAIT_MS));
    done++;
}

static void run(uint32_t at)
{
    push_both(at);
    wait_both(at);
}

static void iterate(uint32_t times)
{
    for (uint32_t i = 0; i < times; i++) {
        run(0);
        run(1);
    }
}

/* --- holds --- */

static void hold(uint64_t id, uint32_t scope)
{
    script_lock(&rig);
    script_hold(&rig, id, scope, false);
    script_unlock(&rig);
}

/* Waits until rank 0 has read its messages. The function sends a question, which rank 0 answers
 * after all earlier messages. */
static void await_heard(void)
{
    script_lock(&rig);
    rig.resize_failure = -EOPNOTSUPP;
    rig.resize_text = "it keeps its workers";
    script_unlock(&rig);
    failed(gp_job_resize(jobs[0], WORKERS, WAIT_MS), -EOPNOTSUPP, NULL);
}

static void let_go(uint64_t id)
{
    script_lock(&rig);
    script_hold(&rig, id, ROUNDS, true);
    script_unlock(&rig);
}

/* Checks the state in the last report of this hold. */
static void expect_state(uint64_t id, int state)
{
    script_lock(&rig);
    while (rig.held_count == 0 || rig.held_of[rig.held_count - 1] != id ||
           rig.held[rig.held_count - 1] != state)
        script_wait(&rig);
    script_unlock(&rig);
}

static void expect_why(int code, const char *text)
{
    script_lock(&rig);
    assert_int_equal(rig.held_code, code);
    if (!strstr(rig.held_why, text))
        fail_msg("'%s' does not say '%s'", rig.held_why, text);
    script_unlock(&rig);
}

static uint32_t announced_by_rank_0(void)
{
    uint32_t count = 0;
    script_lock(&rig);
    for (uint32_t i = 0; i < rig.heard_count; i++)
        count += rig.heard[i].rank == 0;
    script_unlock(&rig);
    return count;
}

/* Pushes in both ranks. Rank 0 must announce nothing. */
static void push_in_vain(uint32_t tensors)
{
    for (uint32_t at = 0; at < tensors; at++)
        push_both(at);
    wait_heard(WORKERS * done + tensors);
    assert_int_equal(announced_by_rank_0(), done);
}

static void wait_all(uint32_t tensors)
{
    for (uint32_t at = 0; at < tensors; at++)
        wait_both(at);
    assert_int_equal(announced_by_rank_0(), done);
}

/* --- rounds that continue, rounds that wait --- */

static void a_rank_after_an_iteration_is_held_as_it_begins_the_next(void **state)
{
    iterate(3);
    hold(1, ROUNDS);
    expect_state(1, STATE(RESTS));
    push_in_vain(TENSORS);
    expect_state(1, STATE(ENDED));
    let_go(1);
    wait_all(TENSORS);
}

static void an_iteration_that_has_begun_goes_on_to_its_end(void **state)
{
    iterate(3);
    run(1);
    hold(1, ROUNDS);
    await_heard();
    run(0);
    expect_state(1, STATE(RESTS));
    push_in_vain(1);
    expect_state(1, STATE(ENDED));
    let_go(1);
    wait_all(1);
    iterate(1);
}

static void the_end_of_an_iteration_is_known_only_with_all_results(void **state)
{
    iterate(3);
    script_lock(&rig);
    rig.holds_results = true;
    script_unlock(&rig);
    push_both(0);
    push_both(1);
    hold(1, ROUNDS);
    wait_heard(WORKERS * (done + TENSORS));
    script_lock(&rig);
    assert_int_equal(rig.held_count, 0);
    rig.holds_results = false;
    script_lane_resume(&rig);
    script_unlock(&rig);
    wait_all(TENSORS);
    expect_state(1, STATE(RESTS));
    push_in_vain(1);
    expect_state(1, STATE(ENDED));
    let_go(1);
    wait_all(1);
}

static void a_group_is_of_one_iteration(void **state)
{
    gp_request *all[WORKERS];
    iterate(3);
    hold(1, ROUNDS);
    expect_state(1, STATE(RESTS));
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        const gp_item items[] = {{t[1][rank], gradient, result[1][rank]},
                                 {t[0][rank], gradient, result[0][rank]}};
        ok(gp_push_pull_group(jobs[rank], items, TENSORS, GP_SUM, &all[rank]));
    }
    wait_heard(WORKERS * done + TENSORS);
    assert_int_equal(announced_by_rank_0(), done);
    let_go(1);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_wait(all[rank], WAIT_MS));
}

static void broadcast_both(uint32_t at)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_broadcast(t[at][rank], result[at][rank], 0, &q[at][rank]));
}

static void a_tensor_set_after_an_iteration_waits(void **state)
{
    iterate(3);
    hold(1, ROUNDS);
    expect_state(1, STATE(RESTS));
    for (uint32_t at = 0; at < TENSORS; at++)
        broadcast_both(at);
    expect_state(1, STATE(ENDED));
    wait_heard(WORKERS * done + TENSORS);
    assert_int_equal(announced_by_rank_0(), done);
    hold(2, ROUNDS); /* a new hold with the same end replaces the first hold */
    expect_state(2, STATE(ENDED));
    assert_int_equal(announced_by_rank_0(), done);
    let_go(2);
    wait_all(TENSORS);
    hold(3, ROUNDS);
    /* the report says that the rank has observed no end of an iteration */
    expect_state(3, STATE(RESTS));
    let_go(3);
}

static void a_tensor_set_before_the_end_of_the_iteration_continues(void **state)
{
    iterate(3);
    run(0);
    hold(1, ROUNDS);
    await_heard();
    broadcast_both(0);
    wait_both(0);
    let_go(1);
    run(1);
}

/* --- reports to the coordinator --- */

static void an_idle_rank_without_an_observed_end_counts_as_held(void **state)
{
    hold(1, ROUNDS);
    expect_state(1, STATE(RESTS));
    let_go(1);
    iterate(2); /* completes one iteration */
    hold(2, ROUNDS);
    expect_state(2, STATE(RESTS));
    push_in_vain(1);
    /* a second push of the same tensor shows that the iteration has ended */
    expect_state(2, STATE(ENDED));
    let_go(2);
    wait_all(1);
}

static void a_tensor_that_lacks_its_round_is_named(void **state)
{
    iterate(3);
    run(0);
    hold(1, ROUNDS);
    await_heard();
    push_in_vain(1);
    expect_state(1, STATE(FAILED));
    expect_why(-EOPNOTSUPP, "tensor 'second' had no round");
    let_go(1);
    wait_all(1);
}

static void a_newly_declared_tensor_is_awaited(void **state)
{
    gp_tensor *third[WORKERS];
    iterate(3);
    declare("third", ELEMENTS, third);
    run(0);
    run(1);
    hold(1, ROUNDS);
    await_heard();
    push_in_vain(1);
    expect_state(1, STATE(FAILED));
    expect_why(-EAGAIN, "fewer than 2 consecutive iterations");
    let_go(1);
    wait_all(1);
    run(1);
    iterate(1); /* iterations do not include a tensor that is never pushed */
    hold(2, ROUNDS);
    expect_state(2, STATE(RESTS));
    push_in_vain(1);
    expect_state(2, STATE(ENDED));
    let_go(2);
    wait_all(1);
}

static void a_hold_for_updates_ignores_plain_tensors(void **state)
{
    iterate(3);
    hold(1, UPDATES);
    expect_state(1, STATE(RESTS)); /* no iteration has been detected */
    iterate(2);
    let_go(1);
}

static void update_both(gp_tensor *const *w)
{
    static float values[WORKERS][ELEMENTS];
    const gp_settings settings = {.rate = 0.1};
    gp_request *requests[WORKERS];
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_update(w[rank], gradient, values[rank], rank == 0 ? &settings : NULL,
                     &requests[rank]));
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_wait(requests[rank], WAIT_MS));
}

/* Declares two tensors with an update rule, and sets their parameters. */
static void declare_parameters(gp_tensor *(*ret_tensors)[WORKERS])
{
    static float values[WORKERS][ELEMENTS];
    for (int i = 0; i < 2; i++) {
        const gp_tensor_spec spec = {
            .name = i ? "b" : "a", .dtype = GP_F32, .elements = ELEMENTS, .rule = GP_SGD};
        gp_request *requests[WORKERS];
        for (uint32_t rank = 0; rank < WORKERS; rank++)
            ok(gp_tensors_declare(jobs[rank], &spec, 1, &ret_tensors[i][rank]));
        for (uint32_t rank = 0; rank < WORKERS; rank++)
            ok(gp_broadcast(ret_tensors[i][rank], values[rank], 0, &requests[rank]));
        for (uint32_t rank = 0; rank < WORKERS; rank++)
            ok(gp_wait(requests[rank], WAIT_MS));
    }
}

static void a_tensor_without_an_update_may_get_one_in_the_first_iteration(void **state)
{
    gp_tensor *w[2][WORKERS];
    declare_parameters(w);
    hold(1, UPDATES);
    expect_state(1, STATE(RESTS)); /* no iteration has started */
    let_go(1);
    update_both(w[0]);
    hold(2, UPDATES);
    await_heard();
    script_lock(&rig);
    /* the rank continues training and reports nothing */
    assert_int_equal(rig.held_of[rig.held_count - 1], 1);
    script_unlock(&rig);
    update_both(w[1]);
    expect_state(2, STATE(RESTS));
    let_go(2);
}

static void a_tensor_without_an_update_in_a_whole_iteration_counts_as_frozen(void **state)
{
    gp_tensor *w[2][WORKERS];
    declare_parameters(w);
    update_both(w[0]);
    update_both(w[0]);
    hold(1, UPDATES);
    expect_state(1, STATE(RESTS));
    let_go(1);
}

/* --- the end of a hold --- */

static void an_absent_coordinator_holds_no_rank(void **state)
{
    iterate(3);
    hold(1, ROUNDS);
    expect_state(1, STATE(RESTS));
    push_in_vain(TENSORS);
    script_lock(&rig);
    script_drop_control(&rig);
    script_unlock(&rig);
    wait_all(TENSORS);
    iterate(1);
    script_lock(&rig);
    script_restart_control(&rig);
    script_unlock(&rig);
}

static void the_end_of_another_hold_is_passed_over(void **state)
{
    iterate(3);
    hold(1, ROUNDS);
    expect_state(1, STATE(RESTS));
    push_in_vain(1);
    let_go(2);
    hold(3, ROUNDS); /* a new hold in the started iteration replaces the first hold */
    run(1);
    wait_all(1);
    expect_state(3, STATE(RESTS));
    push_in_vain(1);
    let_go(1);
    assert_int_equal(announced_by_rank_0(), done);
    let_go(0);
    wait_all(1);
}

static void *stand(void *is_standing)
{
    pthread_mutex_lock(&jobs[0]->lock);
    hold_note_standing(jobs[0], is_standing);
    pthread_mutex_unlock(&jobs[0]->lock);
    return NULL;
}

static void a_rank_that_idles_within_an_iteration_is_not_awaited(void **state)
{
    iterate(3);
    run(0);
    hold(1, ROUNDS);
    await_heard();
    stand(&rig);
    expect_state(1, STATE(FAILED));
    expect_why(-EAGAIN, "before tensor 'second'");
    stand(NULL);
    let_go(1);
    run(1);
    hold(2, ROUNDS);
    expect_state(2, STATE(RESTS));
    stand(&rig); /* an idle rank between two iterations counts as held */
    expect_state(2, STATE(ENDED));
    stand(NULL);
}

static void a_waiting_thread_does_not_delay_the_end_of_the_iteration(void **state)
{
    pthread_t thread;
    iterate(3);
    run(0);
    hold(1, ROUNDS);
    await_heard();
    assert_int_equal(pthread_create(&thread, NULL, stand, &rig), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    run(1);
    expect_state(1, STATE(RESTS));
}

static void note_saving(bool saves)
{
    pthread_mutex_lock(&jobs[0]->lock);
    hold_note_saving(jobs[0], saves);
    pthread_mutex_unlock(&jobs[0]->lock);
}

static bool may_save(void)
{
    pthread_mutex_lock(&jobs[0]->lock);
    bool may = hold_lets_save(jobs[0]);
    pthread_mutex_unlock(&jobs[0]->lock);
    return may;
}

static void await_may_save(void)
{
    while (!may_save())
        sched_yield();
}

static void a_rank_that_saves_is_after_no_iteration_until_the_save_ends(void **state)
{
    iterate(3);
    hold(1, ROUNDS);
    expect_state(1, STATE(RESTS));
    note_saving(true);
    expect_state(1, STATE(SAVES));
    await_may_save();
    push_in_vain(1);
    note_saving(false);
    expect_state(1, STATE(ENDED));
    let_go(1);
    wait_all(1);
    run(1);
    note_saving(true);
    hold(2, ROUNDS); /* the hold is for a worker that joins during the snapshot */
    expect_state(2, STATE(SAVES));
    await_may_save();
    note_saving(false);
    expect_state(2, STATE(RESTS));
    let_go(2);
}

static void a_rank_that_is_held_saves_after_the_hold(void **state)
{
    iterate(3);
    hold(1, ROUNDS);
    expect_state(1, STATE(RESTS));
    script_lock(&rig);
    rig.saving_is_late = true;
    script_unlock(&rig);
    note_saving(true);
    expect_state(1, STATE(SAVES));
    await_heard();
    assert_false(may_save());
    let_go(1);
    await_may_save();
    note_saving(false);
}

static void a_rank_that_leaves_needs_no_release(void **state)
{
    iterate(3);
    hold(1, ROUNDS);
    expect_state(1, STATE(RESTS));
    push_in_vain(1);
    expect_state(1, STATE(ENDED));
    gp_job_leave(jobs[0]);
    failed(gp_wait(q[0][0], WAIT_MS), -ECANCELED, "left", NULL);
    jobs[0] = NULL;
}

/* --- steps of a deal --- */

static void begin_steps(void)
{
    const gp_deal deal = {.samples = 100, .epochs = 1, .batch = 2};
    gp_step step;
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_deal_declare(jobs[rank], &deal, NULL, 0, NULL));
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        assert_int_equal(gp_step_begin(jobs[rank], WAIT_MS, &step), 0);
}

static void a_step_ends_when_the_next_one_begins(void **state)
{
    gp_step step;
    begin_steps();
    run(0);
    run(0); /* in one step a tensor may have several rounds, and another tensor may have no round */
    hold(1, ROUNDS);
    await_heard();
    run(0);
    broadcast_both(1); /* within a step, broadcasts are not delayed by a hold */
    wait_both(1);
    assert_int_equal(gp_step_begin(jobs[0], WAIT_MS, &step), 0);
    expect_state(1, STATE(ENDED));
    push(0, 0);
    let_go(1);
    assert_int_equal(gp_step_begin(jobs[1], WAIT_MS, &step), 0);
    push(0, 1);
    wait_both(0);
}

static void a_rank_within_a_step_waits_for_the_rounds_of_the_step(void **state)
{
    begin_steps();
    hold(1, ROUNDS);
    await_heard();
    stand(&rig); /* in this step only the tensor of the record had a round */
    stand(NULL);
    run(0);
    script_lock(&rig);
    assert_int_equal(rig.held_count, 0);
    script_unlock(&rig);
    stand(&rig);
    expect_state(1, STATE(ENDED));
    stand(NULL);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, start, fixture_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_rank_after_an_iteration_is_held_as_it_begins_the_next),
        CASE(an_iteration_that_has_begun_goes_on_to_its_end),
        CASE(the_end_of_an_iteration_is_known_only_with_all_results),
        CASE(a_group_is_of_one_iteration),
        CASE(a_tensor_set_after_an_iteration_waits),
        CASE(a_tensor_set_before_the_end_of_the_iteration_continues),
        CASE(an_idle_rank_without_an_observed_end_counts_as_held),
        CASE(a_tensor_that_lacks_its_round_is_named),
        CASE(a_newly_declared_tensor_is_awaited),
        CASE(a_hold_for_updates_ignores_plain_tensors),
        CASE(a_tensor_without_an_update_may_get_one_in_the_first_iteration),
        CASE(a_tensor_without_an_update_in_a_whole_iteration_counts_as_frozen),
        CASE(an_absent_coordinator_holds_no_rank),
        CASE(the_end_of_another_hold_is_passed_over),
        CASE(a_rank_that_idles_within_an_iteration_is_not_awaited),
        CASE(a_waiting_thread_does_not_delay_the_end_of_the_iteration),
        CASE(a_rank_that_saves_is_after_no_iteration_until_the_save_ends),
        CASE(a_rank_that_is_held_saves_after_the_hold),
        CASE(a_rank_that_leaves_needs_no_release),
        CASE(a_step_ends_when_the_next_one_begins),
        CASE(a_rank_within_a_step_waits_for_the_rounds_of_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
