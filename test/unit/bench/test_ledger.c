/* Tests the ledger of `gradpool-bench faults`. The members of the elastic job compare their results
 * with the ledger. */
#include "bench/faults/worker/ledger.h"

#include "svc/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static struct ledger *ledger;

/* Makes a ledger with ranks 0 to 2. */
static int begin(void **state)
{
    ledger = calloc(1, sizeof *ledger);
    ledger->grace_ns = 20 * NS_PER_MS;
    for (uint32_t rank = 0; rank < 3; rank++)
        ledger->present[rank] = 1;
    return 0;
}

static int end(void **state)
{
    free(ledger);
    return 0;
}

static const struct ledger_push all[LEDGER_RANKS] = {{1, 7}, {1, 5}, {1, 9}};
static const struct ledger_push two[LEDGER_RANKS] = {{1, 7}, {1, 5}};

static void members_with_the_same_result_agree(void **state)
{
    for (uint32_t rank = 0; rank < 3; rank++)
        assert_true(ledger_note(ledger, rank, all));
}

static void a_round_of_other_gradients_is_seen(void **state)
{
    assert_true(ledger_note(ledger, 0, all));
    assert_false(ledger_note(ledger, 1, two));
}

static void a_push_that_is_in_two_rounds_is_seen(void **state)
{
    static const struct ledger_push next[LEDGER_RANKS] = {{1, 8}, {1, 5}, {1, 10}};
    assert_true(ledger_note(ledger, 0, all));
    assert_false(ledger_note(ledger, 0, next));
}

static void a_result_that_only_dead_members_had_is_computed_again(void **state)
{
    assert_true(ledger_note(ledger, 2, all));
    ledger->present[2] = 0;
    assert_true(ledger_note(ledger, 0, two));
    assert_true(ledger_note(ledger, 1, two));
}

static void a_member_that_has_joined_again_is_not_the_dead_one(void **state)
{
    assert_true(ledger_note(ledger, 2, all));
    ledger->present[2] = 2;
    assert_true(ledger_note(ledger, 0, two));
}

static void later_rounds_take_the_place_of_old_ones(void **state)
{
    struct ledger_push pushes[LEDGER_RANKS] = {{1, 7}, {1, 5}, {1, 9}};
    for (uint32_t round = 0; round < 3 * LEDGER_ROUNDS; round++) {
        for (uint32_t rank = 0; rank < 3; rank++)
            assert_true(ledger_note(ledger, rank, pushes));
        for (uint32_t rank = 0; rank < 3; rank++)
            pushes[rank].count++;
    }
}

static void a_trail_begins_anywhere(void **state)
{
    struct trail trail = {0};
    assert_true(trail_follow(&trail, all));
}

static void a_trail_continues_by_ones_and_after_a_new_join(void **state)
{
    static const struct ledger_push later[][LEDGER_RANKS] = {
        {{1, 8}, {1, 6}}, {{1, 9}, {1, 7}, {2, 1}}, {{1, 10}, {1, 8}, {2, 2}, {1, 1}}};
    struct trail trail = {0};
    assert_true(trail_follow(&trail, all));
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        assert_true(trail_follow(&trail, later[i]));
}

static void a_trail_shows_missing_and_repeated_pushes(void **state)
{
    static const struct ledger_push wrong[][LEDGER_RANKS] = {
        {{1, 9}, {1, 6}, {1, 10}}, /* one gradient is missing */
        {{1, 7}, {1, 6}, {1, 10}}, /* one gradient is counted twice */
        {{1, 8}, {1, 6}, {2, 2}},  /* the first push of a rank that has returned is missing */
        {{1, 8}, {1, 6}, {0, 1}},  /* a push of a rank that left long ago is included */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct trail trail = {0};
        assert_true(trail_follow(&trail, all));
        assert_false(trail_follow(&trail, wrong[i]));
    }
}

static void no_member_misses_a_round_and_continues(void **state)
{
    static const struct ledger_push back[LEDGER_RANKS] = {{1, 9}, {1, 7}, {1, 10}};
    static const struct ledger_push without[LEDGER_RANKS] = {{1, 8}, {1, 6}};
    struct trail trail = {0};
    assert_true(trail_follow(&trail, all));
    assert_true(trail_follow(&trail, without));
    assert_false(trail_follow(&trail, back));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(members_with_the_same_result_agree, begin, end),
        cmocka_unit_test_setup_teardown(a_round_of_other_gradients_is_seen, begin, end),
        cmocka_unit_test_setup_teardown(a_push_that_is_in_two_rounds_is_seen, begin, end),
        cmocka_unit_test_setup_teardown(a_result_that_only_dead_members_had_is_computed_again,
                                        begin, end),
        cmocka_unit_test_setup_teardown(a_member_that_has_joined_again_is_not_the_dead_one, begin,
                                        end),
        cmocka_unit_test_setup_teardown(later_rounds_take_the_place_of_old_ones, begin, end),
        cmocka_unit_test(a_trail_begins_anywhere),
        cmocka_unit_test(a_trail_continues_by_ones_and_after_a_new_join),
        cmocka_unit_test(a_trail_shows_missing_and_repeated_pushes),
        cmocka_unit_test(no_member_misses_a_round_and_continues),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
