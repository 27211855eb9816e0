/* Another aggregator becomes the keeper of a state's copy (README of svc/aggregator, A49; svc/wire,
 * W20), between rounds, in mid-round, while a new owner is finding out: as transcripts. */
#include "test/unit/keeper_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void rounds_wait_for_the_next_keeper_which_gets_the_state_first(void **state)
{
    start_with_keeper(3);
    memcpy(kept, rig_input(&rig, KEEPER, halves[0]), sizeof kept);
    name(NUMBER(OTHER), true); /* its rounds are known: at once */
    expect_let_go(KEEPER);
    announce_all(4);
    expect_waiting();
    connect_keeper(OTHER);
    expect_waiting();
    keep(OTHER);
    expect_filled(OTHER, 3);
    expect_commit(4);
    expect_kept(OTHER, 4);
    follow(5, 5);
    expect_kept(OTHER, 5);
    assert_memory_equal(rig_input(&rig, KEEPER, halves[0]), kept, sizeof kept);
}

static void who_offers_before_it_is_named_is_remembered(void **state)
{
    start_with_keeper(2);
    connect_keeper(OTHER);
    keep(OTHER);
    follow(3, 3);
    expect_kept(KEEPER, 3);
    assert_int_equal(stamp_of(OTHER, 3).round, 0);
    name(NUMBER(OTHER), false);
    expect_let_go(KEEPER);
    expect_filled(OTHER, 3);
    follow(4, 4);
    expect_kept(OTHER, 4);
}

static void who_has_gone_before_it_is_named_is_forgotten(void **state)
{
    start_with_keeper(2);
    connect_keeper(OTHER);
    keep(OTHER);
    rig_settle(&rig);
    end_connection(OTHER);
    name(NUMBER(OTHER), false);
    announce_all(3);
    expect_waiting();
    connect_again(OTHER);
    keep(OTHER);
    expect_commit(3);
    expect_kept(OTHER, 3);
}

static void a_round_that_was_under_way_goes_to_the_next_keeper(void **state)
{
    start_with_keeper(3);
    connect_keeper(OTHER);
    keep(OTHER);
    rig_settle(&rig);
    begin_round(4);
    name(NUMBER(OTHER), false);
    expect_commit(4);
    expect_let_go(KEEPER);
    expect_kept(OTHER, 4);
    assert_int_equal(rig.workers[0].commits_count, 4);
}

static void without_a_keeper_rounds_go_on(void **state)
{
    start_with_keeper(3);
    memcpy(kept, rig_input(&rig, KEEPER, halves[0]), sizeof kept);
    end_connection(KEEPER);
    announce_all(4);
    expect_waiting();
    name(0, false);
    expect_commit(4);
    follow(5, 5);
    assert_memory_equal(rig_input(&rig, KEEPER, halves[0]), kept, sizeof kept);
}

/* Between the filling and the next round one half is nobody's; 6 and 0 are alike modulo 3. */
static void the_updates_behind_a_state_are_those_of_its_own_half(void **state)
{
    start_with_keeper(6);
    end_connection(KEEPER);
    memset(rig_input(&rig, KEEPER, halves[0]), 0, 2 * HALF_BYTES);
    connect_again(KEEPER);
    keep(KEEPER);
    expect_filled(KEEPER, 6);
    lose_lane();
    bring_copy();
    keep(KEEPER);
    announce_all(7);
    expect_commit(7);
    expect_kept(KEEPER, 7);
}

static void the_former_keepers_copy_is_read_before_the_next_one_counts(void **state)
{
    start_with_keeper(4);
    lose_lane();
    name(NUMBER(OTHER), true);
    connect_keeper(OTHER);
    keep(OTHER);
    announce_all(5);
    expect_waiting();
    bring_copy();
    keep(KEEPER);
    expect_filled(OTHER, 4);
    expect_let_go(KEEPER);
    expect_commit(5);
    expect_kept(OTHER, 5);
    assert_memory_equal(rig_input(&rig, KEEPER, halves[0]), kept, sizeof kept);
}

static void a_next_keeper_that_comes_late_holds_up_what_was_read_from_the_former(void **state)
{
    start_with_keeper(4);
    lose_lane();
    name(NUMBER(OTHER), true);
    bring_copy();
    keep(KEEPER);
    announce_all(5);
    expect_let_go(KEEPER);
    expect_waiting();
    connect_keeper(OTHER);
    keep(OTHER);
    expect_filled(OTHER, 4);
    expect_commit(5);
    expect_kept(OTHER, 5);
}

#define CASE(name) cmocka_unit_test_teardown(name, stop)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CASE(rounds_wait_for_the_next_keeper_which_gets_the_state_first),
        CASE(who_offers_before_it_is_named_is_remembered),
        CASE(who_has_gone_before_it_is_named_is_forgotten),
        CASE(a_round_that_was_under_way_goes_to_the_next_keeper),
        CASE(without_a_keeper_rounds_go_on),
        CASE(the_updates_behind_a_state_are_those_of_its_own_half),
        CASE(the_former_keepers_copy_is_read_before_the_next_one_counts),
        CASE(a_next_keeper_that_comes_late_holds_up_what_was_read_from_the_former),
    };
    kind = argc > 1 ? argv[1] : "shm";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
