/* Tests the client's commit rule (W4, L1, L2, L17): which memory may be written, and when pushes
 * wait. The scripted service delays results and commits. */
#include "test/unit/client/client_fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define ELEMENTS 1000

static void set(bool *knob, bool to)
{
    script_lock(&rig);
    *knob = to;
    script_lane_resume(&rig);
    script_unlock(&rig);
}

static void a_wait_on_staged_memory_ends_at_the_result(void **state)
{
    gp_tensor *t[WORKERS];
    declare("w", ELEMENTS, t);
    set(&rig.holds_commits, true);
    run_round(t, 1);
}

static void a_wait_on_lent_memory_ends_at_the_commit(void **state)
{
    float *gradient[WORKERS], *result[WORKERS];
    gp_tensor *t[WORKERS];
    gp_request *q[WORKERS];
    declare("w", ELEMENTS, t);
    set(&rig.holds_commits, true);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        gradient[rank] = lent(rank, ELEMENTS);
        result[rank] = lent(rank, ELEMENTS);
        fill(gradient[rank], ELEMENTS, rank, 1);
        ok(gp_push_pull(t[rank], gradient[rank], result[rank], GP_MEAN, &q[rank]));
    }
    failed(gp_wait(q[0], SHORT_MS), -ETIMEDOUT, "'w' round 1", NULL);
    /* the result has arrived, but must not be overwritten yet */
    check_mean(result[0], ELEMENTS, 1);
    set(&rig.holds_commits, false);
    ok(gp_wait(q[0], WAIT_MS));
    ok(gp_wait(q[1], WAIT_MS));
}

static void in_place_in_lent_memory_is_written_only_after_the_commit(void **state)
{
    float *values[WORKERS], before[ELEMENTS];
    gp_tensor *t[WORKERS];
    gp_request *q[WORKERS];
    declare("w", ELEMENTS, t);
    set(&rig.holds_commits, true);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        values[rank] = lent(rank, ELEMENTS);
        fill(values[rank], ELEMENTS, rank, 1);
        ok(gp_push_pull(t[rank], values[rank], values[rank], GP_MEAN, &q[rank]));
    }
    failed(gp_wait(q[0], SHORT_MS), -ETIMEDOUT, NULL);
    fill(before, ELEMENTS, 0, 1);
    assert_memory_equal(values[0], before, sizeof before);
    set(&rig.holds_commits, false);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        ok(gp_wait(q[rank], WAIT_MS));
        check_mean(values[rank], ELEMENTS, 1);
    }
}

/* Checks a rank's announced input as the lane reads it. */
static void check_input(uint32_t rank, uint64_t round, size_t elements)
{
    static float want[1 << 15];
    fill(want, elements, rank, round);
    script_lock(&rig);
    const struct script_heard *h = heard(rank, round);
    const void *input = fabric_map(rig.lanes[h->lane].workers[rank].conn, h->ready.input_region,
                                   h->ready.input_offset, h->ready.input_bytes);
    assert_memory_equal(input, want, elements * sizeof *want);
    script_unlock(&rig);
}

/* number of elements; two copies of this length do not fit into staging memory (L17) */
enum { LONG = 20000 };

static void push_long(gp_tensor *t, uint32_t rank, uint64_t round, gp_request **ret_request)
{
    static float gradient[WORKERS][LONG], result[WORKERS][LONG];
    fill(gradient[rank], LONG, rank, round);
    ok(gp_push_pull(t, gradient[rank], result[rank], GP_MEAN, ret_request));
}

static void run_long_round(gp_tensor **t, uint64_t round)
{
    gp_request *q[WORKERS];
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        push_long(t[rank], rank, round, &q[rank]);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_wait(q[rank], WAIT_MS));
}

static void the_next_long_push_waits_for_the_commit_without_blocking(void **state)
{
    gp_tensor *t[WORKERS];
    gp_request *q[WORKERS];
    declare("w", LONG, t);
    set(&rig.holds_commits, true);
    run_long_round(t, 1);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        push_long(t[rank], rank, 2, &q[rank]);
        failed(gp_wait(q[rank], SHORT_MS), -ETIMEDOUT, "'w' round 1", NULL);
        check_input(rank, 1, LONG); /* the input of round 1 must be unchanged */
    }
    script_lock(&rig);
    assert_null(heard(0, 2));
    assert_null(heard(1, 2));
    script_unlock(&rig);
    set(&rig.holds_commits, false);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_wait(q[rank], WAIT_MS));
}

static void a_queued_push_begins_without_a_waiting_thread(void **state)
{
    gp_tensor *t[WORKERS];
    gp_request *q[WORKERS];
    declare("w", LONG, t);
    set(&rig.holds_commits, true);
    run_long_round(t, 1);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        push_long(t[rank], rank, 2, &q[rank]);
    set(&rig.holds_commits, false);
    wait_heard(4); /* the progress threads have announced round 2 */
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_wait(q[rank], WAIT_MS));
}

static void the_next_short_push_does_not_wait_for_the_commit(void **state)
{
    static float gradient[WORKERS][ELEMENTS], result[WORKERS][ELEMENTS];
    gp_tensor *t[WORKERS];
    gp_request *q[WORKERS];
    declare("w", ELEMENTS, t);
    set(&rig.holds_commits, true);
    run_round(t, 1);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        fill(gradient[rank], ELEMENTS, rank, 2);
        ok(gp_push_pull(t[rank], gradient[rank], result[rank], GP_MEAN, &q[rank]));
    }
    wait_heard(4);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        check_input(rank, 1, ELEMENTS); /* the input of round 1 must be unchanged */
        check_input(rank, 2, ELEMENTS);
    }
    set(&rig.holds_commits, false);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        ok(gp_wait(q[rank], WAIT_MS));
        check_mean(result[rank], ELEMENTS, 2);
    }
    run_round(t, 3);
}

/* Pushes by broadcasts, because broadcasts need no settings. */
static void push_first(gp_tensor *const *t, float (*values)[ELEMENTS], gp_request **ret_requests)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_broadcast(t[rank], values[rank], 0, &ret_requests[rank]));
}

/* Until the commit, a new owner may still need this half of the stored copy, so the lane must not
 * overwrite this half (W17). */
static void the_next_short_push_waits_for_the_commit_where_a_copy_is_kept(void **state)
{
    static float values[WORKERS][ELEMENTS];
    const gp_tensor_spec spec = {
        .name = "w", .dtype = GP_F32, .elements = ELEMENTS, .rule = GP_SGD};
    gp_tensor *t[WORKERS];
    gp_request *q[WORKERS];
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        const gp_job_spec job = {
            .name = "job", .rank = rank, .workers = WORKERS, .durability = GP_DURABILITY_REPLICA};
        ok(gp_connect(rig.endpoint, NULL, &clients[rank]));
        ok(gp_job_join(clients[rank], &job, &jobs[rank]));
        ok(gp_tensors_declare(jobs[rank], &spec, 1, &t[rank]));
    }
    set(&rig.holds_commits, true);
    push_first(t, values, q);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_wait(q[rank], WAIT_MS));
    push_first(t, values, q);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        failed(gp_wait(q[rank], SHORT_MS), -ETIMEDOUT, "'w' round 1", NULL);
    script_lock(&rig);
    assert_null(heard(0, 2));
    assert_null(heard(1, 2));
    script_unlock(&rig);
    set(&rig.holds_commits, false);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_wait(q[rank], WAIT_MS));
}

static void a_fast_worker_laps_a_slow_one(void **state)
{
    static float gradient[WORKERS][ELEMENTS], result[WORKERS][ELEMENTS];
    gp_tensor *t[WORKERS];
    gp_request *slow, *fast;
    declare("w", ELEMENTS, t);
    fill(gradient[1], ELEMENTS, 1, 1);
    ok(gp_push_pull(t[1], gradient[1], result[1], GP_MEAN, &slow));
    for (uint64_t round = 1; round <= 2; round++) {
        fill(gradient[0], ELEMENTS, 0, round);
        ok(gp_push_pull(t[0], gradient[0], result[0], GP_MEAN, &fast));
        if (round == 1)
            ok(gp_wait(fast, WAIT_MS));
    }
    wait_heard(3); /* rank 0 has announced round 2, but rank 1 has not read the result of round 1 */
    ok(gp_wait(slow, WAIT_MS));
    check_mean(result[1], ELEMENTS, 1);
    fill(gradient[1], ELEMENTS, 1, 2);
    ok(gp_push_pull(t[1], gradient[1], result[1], GP_MEAN, &slow));
    ok(gp_wait(fast, WAIT_MS));
    ok(gp_wait(slow, WAIT_MS));
    check_mean(result[0], ELEMENTS, 2);
    check_mean(result[1], ELEMENTS, 2);
}

/* Rank 0 has started round 2, and does not know whether rank 1 has the result of round 1. */
static void a_result_that_one_rank_keeps_is_given_to_the_rest(void **state)
{
    static float gradient[WORKERS][ELEMENTS], result[WORKERS][ELEMENTS];
    gp_tensor *t[WORKERS];
    gp_request *q[WORKERS];
    declare("w", ELEMENTS, t);
    script_lock(&rig);
    rig.holds_commits = true;
    rig.withheld = 1u << 1;
    script_unlock(&rig);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        fill(gradient[rank], ELEMENTS, rank, 1);
        ok(gp_push_pull(t[rank], gradient[rank], result[rank], GP_MEAN, &q[rank]));
    }
    ok(gp_wait(q[0], WAIT_MS));
    fill(gradient[0], ELEMENTS, 0, 2);
    ok(gp_push_pull(t[0], gradient[0], result[0], GP_MEAN, &q[0]));
    wait_heard(3);
    script_lock(&rig);
    rig.holds_commits = false;
    rig.withheld = 0;
    script_kill_lane(&rig, 0);
    script_move(&rig, 0, 1);
    script_unlock(&rig);
    ok(gp_wait(q[1], WAIT_MS));
    check_mean(result[1], ELEMENTS, 1);
    fill(gradient[1], ELEMENTS, 1, 2);
    ok(gp_push_pull(t[1], gradient[1], result[1], GP_MEAN, &q[1]));
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        ok(gp_wait(q[rank], WAIT_MS));
        check_mean(result[rank], ELEMENTS, 2);
    }
    script_lock(&rig);
    assert_int_equal(heard(0, 1)->lane, 1);
    assert_int_equal(heard(0, 1)->ready.standing, RECORD_KEEPS);
    assert_int_equal(heard(0, 2)->ready.standing, RECORD_ANNOUNCE);
    script_unlock(&rig);
    run_round(t, 3);
}

/* ---- groups of which one tensor fails ---- */

#define REASON "rank 0 declares 1000 elements, rank 1 999"

static void fail_first_tensor(void)
{
    script_lock(&rig);
    script_fail_tensor(&rig, 1, -EINVAL, "tensor 'a': " REASON);
    script_unlock(&rig);
}

/* A lane may still read the memory of 'b' when the request has failed because of 'a'. */
static void a_failed_group_returns_lent_memory_after_its_other_rounds(void **state)
{
    gp_tensor *a[WORKERS], *b[WORKERS];
    float *memory[WORKERS];
    gp_request *q[WORKERS];
    declare("a", ELEMENTS, a);
    declare("b", ELEMENTS, b);
    set(&rig.holds_results, true);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        float *of_a = lent(rank, ELEMENTS);
        memory[rank] = lent(rank, ELEMENTS);
        fill(memory[rank], ELEMENTS, rank, 1);
        gp_item items[] = {{a[rank], of_a, of_a}, {b[rank], memory[rank], memory[rank]}};
        ok(gp_push_pull_group(jobs[rank], items, 2, GP_MEAN, &q[rank]));
    }
    wait_heard(4);
    fail_first_tensor();
    UNTIL_TIMED_OUT(gp_wait(q[0], SHORT_MS), "has failed");
    failed(gp_wait(q[0], SHORT_MS), -ETIMEDOUT, "tensor 'b' round 1: ", "has not finished",
           "; the request has failed, and lanes still use its memory: ", "tensor 'a': " REASON,
           ". Push its other tensors on every rank, or leave the job", NULL);
    assert_int_equal(gp_poll(q[0], 0), 0);
    set(&rig.holds_results, false);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        failed(gp_wait(q[rank], WAIT_MS), -EINVAL, REASON, NULL);
        memset(memory[rank], 0, ELEMENTS * sizeof(float));
    }
    run_round(b, 2);
}

static void a_queued_push_of_a_failed_group_begins_no_round(void **state)
{
    static float gradient[WORKERS][2][LONG];
    gp_tensor *a[WORKERS], *b[WORKERS], *c[WORKERS];
    gp_request *q[WORKERS];
    declare("a", LONG, a);
    declare("b", LONG, b);
    declare("c", ELEMENTS, c);
    set(&rig.holds_commits, true);
    run_long_round(b, 1);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        gp_item items[] = {{a[rank], gradient[rank][0], gradient[rank][0]},
                           {b[rank], gradient[rank][1], gradient[rank][1]}};
        ok(gp_push_pull_group(jobs[rank], items, 2, GP_MEAN, &q[rank]));
    }
    fail_first_tensor();
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        while (gp_poll(q[rank], SHORT_MS) == 0)
            ;
    set(&rig.holds_commits, false);
    run_round(c, 1); /* the commit of 'b' arrives before this result */
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        failed(gp_wait(q[rank], WAIT_MS), -EINVAL, REASON, NULL);
    run_long_round(b, 2);
    script_lock(&rig);
    assert_int_equal(rig.heard_count, 8); /* two rounds of 'b', one of 'a' and 'c' each */
    script_unlock(&rig);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_start, fixture_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_wait_on_staged_memory_ends_at_the_result),
        CASE(a_wait_on_lent_memory_ends_at_the_commit),
        CASE(in_place_in_lent_memory_is_written_only_after_the_commit),
        CASE(the_next_long_push_waits_for_the_commit_without_blocking),
        CASE(a_queued_push_begins_without_a_waiting_thread),
        CASE(the_next_short_push_does_not_wait_for_the_commit),
        cmocka_unit_test_setup_teardown(
            the_next_short_push_waits_for_the_commit_where_a_copy_is_kept, fixture_start_alone,
            fixture_stop),
        CASE(a_fast_worker_laps_a_slow_one),
        CASE(a_result_that_one_rank_keeps_is_given_to_the_rest),
        CASE(a_failed_group_returns_lent_memory_after_its_other_rounds),
        CASE(a_queued_push_of_a_failed_group_begins_no_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
