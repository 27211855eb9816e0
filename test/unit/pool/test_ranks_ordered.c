/* Tests a pool that obeys orders of the coordinator (svc/pool/ranks.c), on a clock of the test. */
#include "test/unit/pool/ranks_case.h"

#include <errno.h>

static void order_start(uint32_t rank, uint64_t incarnation, enum rank_effect effect,
                        uint32_t seconds)
{
    assert_int_equal(ranks_order_start(&p, rank, incarnation, now_ns, &pause_s), effect);
    assert_int_equal(pause_s, seconds);
}

/* Carries out the start that is due. */
static void expect_ordered(uint32_t rank, uint64_t incarnation)
{
    struct pool_action action = next();
    assert_int_equal(action.verb, POOL_START);
    assert_int_equal(action.rank, rank);
    assert_int_equal(p.ranks[rank].ordered, incarnation);
    ranks_started(&p, rank, incarnation, false, now_ns);
}

static int obey(void **state)
{
    now_ns = 1000 * NS_PER_S;
    ranks_init(&p, 1, MOST, LEAVE_NS);
    p.is_ordered = true;
    expect_rest();
    assert_false(ranks_are_over(&p));
    order_start(0, 7, EFFECT_NEW, 0);
    order_start(1, 8, EFFECT_NEW, 0);
    expect_ordered(0, 7);
    expect_ordered(1, 8);
    return 0;
}

static void a_repeated_order_starts_no_second_process(void **state)
{
    order_start(1, 8, EFFECT_KNOWN, 0);
    expect_rest();
    assert_int_equal(killed(1), VERDICT_ORDERS);
    expect_rest(); /* the coordinator decides about the next process */
    order_start(1, 8, EFFECT_ENDED, 0);
    order_start(1, 9, EFFECT_NEW, 1);
    order_start(1, 9, EFFECT_KNOWN, 0);
    expect_wait(1);
    pass(1);
    expect_ordered(1, 9);
}

static void pauses_grow_until_a_worker_has_lived_for_long(void **state)
{
    const uint32_t pauses[] = {1, 2, 4, 8, 16, 32, 60, 60};
    for (uint64_t i = 0; i < sizeof pauses / sizeof *pauses; i++) {
        assert_int_equal(exits(1, 3), VERDICT_ORDERS);
        order_start(1, 9 + i, EFFECT_NEW, pauses[i]);
        pass(pauses[i]);
        expect_ordered(1, 9 + i);
    }
    pass(200);
    assert_int_equal(killed(1), VERDICT_ORDERS);
    order_start(1, 50, EFFECT_NEW, 1);
}

/* A refused join has the exit code 75. The coordinator does not count it as a failure, but a
 * program that always ends so is not started without pauses. */
static void a_leave_is_no_failure_and_a_refused_join_has_a_pause(void **state)
{
    assert_int_equal(exits(1, 75), VERDICT_ORDERS);
    order_start(1, 9, EFFECT_NEW, 1);
    pass(1);
    expect_ordered(1, 9);
    assert_int_equal(ranks_order_leave(&p, 1, 9, false, now_ns), EFFECT_NEW);
    assert_int_equal(ranks_order_leave(&p, 1, 9, false, now_ns), EFFECT_KNOWN);
    assert_int_equal(exits(1, 1), VERDICT_AS_ASKED);
    order_start(1, 10, EFFECT_NEW, 0);
    expect_ordered(1, 10);
}

static void a_worker_that_stays_after_a_leave_is_ended(void **state)
{
    ranks_order_leave(&p, 1, 8, false, now_ns);
    expect_wait(30);
    pass(30);
    expect_signal(1, SIGTERM);
    assert_int_equal(ranks_order_leave(&p, 1, 8, true, now_ns), EFFECT_KNOWN);
    assert_int_equal(ranks_order_leave(&p, 0, 7, true, now_ns), EFFECT_NEW);
    expect_signal(0, SIGTERM);
    pass(5);
    expect_signal(1, SIGKILL);
    expect_signal(0, SIGKILL);
}

static void a_start_that_a_leave_overtakes_has_no_process(void **state)
{
    killed(1);
    order_start(1, 9, EFFECT_NEW, 1);
    assert_int_equal(ranks_order_leave(&p, 1, 9, false, now_ns), EFFECT_ENDED);
    expect_rest();
    assert_int_equal(ranks_order_leave(&p, 3, 11, true, now_ns), EFFECT_ENDED);
    assert_int_equal(ranks_order_leave(&p, 0, 6, true, now_ns), EFFECT_ENDED);
    expect_rest();
}

static void a_newer_start_waits_for_the_end_of_the_present_process(void **state)
{
    order_start(1, 9, EFFECT_NEW, 0);
    expect_signal(1, SIGTERM);
    expect_wait(5);
    assert_int_equal(killed(1), VERDICT_AS_ASKED);
    expect_ordered(1, 9);
}

static void the_coordinator_ends_the_job(void **state)
{
    assert_int_equal(exits(0, 0), VERDICT_AS_ASKED);
    assert_int_equal(exits(1, 0), VERDICT_AS_ASKED);
    assert_false(ranks_are_over(&p));
    ranks_order_over(&p, 0);
    assert_true(ranks_are_over(&p) && p.has_trained);
    assert_int_equal(p.code, 0);
}

static void the_last_failure_is_the_exit_code_of_a_failed_job(void **state)
{
    assert_int_equal(exits(1, 7), VERDICT_ORDERS);
    ranks_order_over(&p, -ECONNRESET);
    expect_signal(0, SIGTERM);
    exits(0, 1);
    assert_true(ranks_are_over(&p));
    assert_int_equal(p.code, 7);
}

static void after_a_signal_no_order_starts_a_worker(void **state)
{
    killed(1);
    order_start(1, 9, EFFECT_NEW, 1);
    ranks_stop(&p, 130, now_ns);
    expect_signal(0, SIGINT);
    order_start(1, 9, EFFECT_ENDED, 0);
    order_start(2, 10, EFFECT_ENDED, 0);
    exits(0, 0);
    assert_true(ranks_are_over(&p));
    ranks_order_over(&p, -ECANCELED);
    assert_int_equal(p.code, 130);
}

static void a_missing_program_ends_the_job_if_no_worker_runs(void **state)
{
    assert_int_equal(killed(1), VERDICT_ORDERS);
    order_start(1, 9, EFFECT_NEW, 1);
    pass(1);
    assert_int_equal(next().verb, POOL_START);
    assert_int_equal(ranks_refused(&p, 1, 127, now_ns), VERDICT_ORDERS);
    killed(0);
    order_start(1, 10, EFFECT_NEW, 2);
    pass(2);
    assert_int_equal(next().verb, POOL_START);
    assert_int_equal(ranks_refused(&p, 1, 127, now_ns), VERDICT_ALL);
    assert_true(ranks_are_over(&p));
    assert_int_equal(p.code, 127);
}

/* The order that ends the job was lost, because the coordinator has restarted. */
static void a_forgotten_job_whose_workers_have_ended_well_has_trained(void **state)
{
    assert_int_equal(exits(1, 0), VERDICT_AS_ASKED);
    assert_int_equal(exits(0, 0), VERDICT_AS_ASKED);
    assert_true(ranks_order_forgotten(&p));
    assert_true(ranks_are_over(&p) && p.has_trained);
    assert_int_equal(p.code, 0);
}

static void a_forgotten_job_with_a_failure_has_failed(void **state)
{
    assert_int_equal(exits(0, 0), VERDICT_AS_ASKED);
    assert_int_equal(exits(1, 7), VERDICT_ORDERS);
    assert_false(ranks_order_forgotten(&p));
    assert_true(ranks_are_over(&p));
    assert_int_equal(p.code, 7);
}

static void a_failure_before_the_newest_start_of_a_rank_does_not_count(void **state)
{
    assert_int_equal(exits(1, 7), VERDICT_ORDERS);
    order_start(1, 9, EFFECT_NEW, 1);
    pass(1);
    expect_ordered(1, 9);
    exits(1, 0);
    exits(0, 0);
    assert_true(ranks_order_forgotten(&p));
    assert_int_equal(p.code, 0);
}

static void a_forgotten_job_whose_workers_run_is_lost(void **state)
{
    assert_int_equal(exits(0, 0), VERDICT_AS_ASKED);
    assert_false(ranks_order_forgotten(&p));
    expect_signal(1, SIGTERM);
    exits(1, 0);
    assert_true(ranks_are_over(&p));
    assert_int_equal(p.code, 1);
}

/* Neither a worker that was asked to leave, nor an adopted one, has shown the end of a training. */
static void a_forgotten_job_whose_workers_have_only_left_is_lost(void **state)
{
    ranks_order_leave(&p, 1, 8, false, now_ns);
    assert_int_equal(exits(1, 0), VERDICT_AS_ASKED);
    ranks_ended(&p, 0, END_UNKNOWN, 0, now_ns, &pause_s);
    assert_false(ranks_order_forgotten(&p));
    assert_int_equal(p.code, 1);
}

#define ordered(test) cmocka_unit_test_setup(test, obey)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ordered(a_repeated_order_starts_no_second_process),
        ordered(pauses_grow_until_a_worker_has_lived_for_long),
        ordered(a_leave_is_no_failure_and_a_refused_join_has_a_pause),
        ordered(a_worker_that_stays_after_a_leave_is_ended),
        ordered(a_start_that_a_leave_overtakes_has_no_process),
        ordered(a_newer_start_waits_for_the_end_of_the_present_process),
        ordered(the_coordinator_ends_the_job),
        ordered(the_last_failure_is_the_exit_code_of_a_failed_job),
        ordered(after_a_signal_no_order_starts_a_worker),
        ordered(a_missing_program_ends_the_job_if_no_worker_runs),
        ordered(a_forgotten_job_whose_workers_have_ended_well_has_trained),
        ordered(a_forgotten_job_with_a_failure_has_failed),
        ordered(a_failure_before_the_newest_start_of_a_rank_does_not_count),
        ordered(a_forgotten_job_whose_workers_run_is_lost),
        ordered(a_forgotten_job_whose_workers_have_only_left_is_lost),
    };
    return cmocka_run_group_tests_name("ranks_ordered", tests, NULL, NULL);
}
