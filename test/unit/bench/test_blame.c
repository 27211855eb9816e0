/* Tests which events excuse a failure in `gradpool-bench faults`. Also tests late calls of a
 * worker. */
#include "bench/faults/blame.h"
#include "bench/faults/worker/timed.h"

#include "svc/base/clock.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define S NS_PER_S

static void no_failure_is_excused_by_a_later_strike(void **state)
{
    struct blame_hurts hurts = {0};
    assert_false(blame_was_hurt(&hurts, 100 * S, 0));
    blame_hurt(&hurts, 100 * S);
    assert_false(blame_was_hurt(&hurts, 100 * S - 1, 0));
    assert_true(blame_was_hurt(&hurts, 100 * S, 0));
}

static void a_strike_shows_within_ten_seconds_or_the_deadline_of_the_call(void **state)
{
    struct blame_hurts hurts = {0};
    blame_hurt(&hurts, 100 * S);
    assert_true(blame_was_hurt(&hurts, 110 * S - 1, 2 * S));
    assert_false(blame_was_hurt(&hurts, 110 * S, 2 * S));
    assert_true(blame_was_hurt(&hurts, 115 * S, 17 * S));
    assert_false(blame_was_hurt(&hurts, 117 * S, 17 * S));
}

static void a_later_strike_does_not_replace_an_earlier_one(void **state)
{
    struct blame_hurts hurts = {0};
    blame_hurt(&hurts, 100 * S);
    blame_hurt(&hurts, 105 * S);
    assert_true(blame_was_hurt(&hurts, 104 * S, 0));
}

static void two_ends_within_seconds_may_lose_a_copy(void **state)
{
    struct blame_losses losses = {0};
    blame_ended(&losses, 100 * S, 100 * S);
    assert_false(blame_is_bereft(&losses, 101 * S));
    blame_ended(&losses, 103 * S, 103 * S);
    assert_false(blame_is_bereft(&losses, 103 * S - 1));
    assert_true(blame_is_bereft(&losses, 103 * S));
    assert_true(blame_is_bereft(&losses, 118 * S - 1));
    assert_false(blame_is_bereft(&losses, 118 * S));
}

static void ends_far_apart_excuse_no_failure(void **state)
{
    struct blame_losses losses = {0};
    for (uint64_t i = 0; i < 3 * BLAME_ENDS; i++)
        blame_ended(&losses, (100 + 4 * i) * S, (100 + 4 * i) * S);
    for (uint64_t at = 90; at < 400; at++)
        assert_false(blame_is_bereft(&losses, at * S));
}

static void no_copy_is_made_while_the_service_stands_still(void **state)
{
    struct blame_losses losses = {0};
    blame_ended(&losses, 100 * S, 100 * S);
    blame_stood_still(&losses, 2 * S);
    blame_ended(&losses, 105 * S, 105 * S);
    assert_true(blame_is_bereft(&losses, 106 * S));
    blame_ended(&losses, 109 * S, 109 * S);
    assert_true(blame_is_bereft(&losses, 109 * S)); /* losses at 100 s and at 105 s */
    assert_false(blame_is_bereft(&losses, 121 * S));
}

static void an_end_that_is_seen_late_may_have_been_early(void **state)
{
    struct blame_losses losses = {0};
    blame_ended(&losses, 100 * S, 100 * S);
    blame_ended(&losses, 102 * S, 105 * S);
    assert_false(blame_is_bereft(&losses, 102 * S - 1));
    assert_true(blame_is_bereft(&losses, 102 * S));
    assert_true(blame_is_bereft(&losses, 119 * S));
}

static void a_call_that_is_late_is_a_hang(void **state)
{
    struct victim_board board = {0};
    struct call call = call_begin(&board, "a call", 8 * S);
    assert_int_equal(board.patience_ns, 10 * S);
    call_time(&call, call.began_ns + 10 * S);
    assert_int_equal(board.hangs, 0);
    call_time(&call, call.began_ns + 10 * S + 1);
    assert_int_equal(board.hangs, 1);
}

static void a_late_call_of_a_stopped_worker_is_not_counted(void **state)
{
    struct victim_board board = {0};
    struct call call = call_begin(&board, "a call", 8 * S);
    board.stops++;
    call_time(&call, call.began_ns + 20 * S);
    assert_int_equal(board.hangs, 0);
}

static void an_error_without_a_named_rank_is_counted(void **state)
{
    struct victim_board board = {0};
    call_judge(&board, "a call", 0, "");
    call_judge(&board, "a call", -ETIMEDOUT, "waits for rank 3 (has not joined)");
    assert_int_equal(board.unnamed, 0);
    call_judge(&board, "a call", -ETIMEDOUT, "timed out");
    call_judge(&board, "a call", -EIO, "");
    assert_int_equal(board.unnamed, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_failure_is_excused_by_a_later_strike),
        cmocka_unit_test(a_strike_shows_within_ten_seconds_or_the_deadline_of_the_call),
        cmocka_unit_test(a_later_strike_does_not_replace_an_earlier_one),
        cmocka_unit_test(two_ends_within_seconds_may_lose_a_copy),
        cmocka_unit_test(ends_far_apart_excuse_no_failure),
        cmocka_unit_test(no_copy_is_made_while_the_service_stands_still),
        cmocka_unit_test(an_end_that_is_seen_late_may_have_been_early),
        cmocka_unit_test(a_call_that_is_late_is_a_hang),
        cmocka_unit_test(a_late_call_of_a_stopped_worker_is_not_counted),
        cmocka_unit_test(an_error_without_a_named_rank_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
