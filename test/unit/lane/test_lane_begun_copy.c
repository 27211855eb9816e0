/* Tests when a new owner may use a copy that had just begun (RULES.md of svc/lane, A49). The copy
 * contains only the state of one round, which the lost lane had committed. */
#include "test/unit/lane/holder_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The lane dies when the copy is complete. No rank has received the COMMIT. */
static void lose_lane_behind_a_copy_that_begins(void)
{
    start_with_holder(3);
    name(NUMBER(OTHER), false);
    connect_holder(OTHER);
    keep(OTHER);
    expect_filled(OTHER, 3);
    memcpy(kept, rig_input(&rig, OTHER, halves[0]), sizeof kept);
    rig_stop(&rig);
    place(true);
}

static void expect_told(uint8_t standing)
{
    lose_lane_behind_a_copy_that_begins();
    bring_copy();
    keep(HOLDER);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        say(rank, 3, RECORD_UPDATE, standing);
    await_commit(3);
    follow(4, 5);
    expect_kept(HOLDER, 5);
}

static void a_rank_with_the_result_learns_of_its_commit(void **state) { expect_told(RECORD_HOLDS); }

static void a_rank_that_waits_for_the_result_learns_of_its_commit(void **state)
{
    expect_told(RECORD_ANNOUNCE);
}

/* Another piece of the tensor has not started the round. The remaining ranks therefore repeat the
 * round in all pieces of the tensor (A44). */
static void a_present_state_is_rolled_back_for_any_state_of_its_copy(void **state)
{
    static float before[ARRAYS][ELEMENTS];
    start_with_holder(2);
    memcpy(before, model, sizeof before);
    follow(3, 3);
    end_connection(HOLDER);
    memset(rig_input(&rig, HOLDER, halves[0]), 0, 2 * HALF_BYTES);
    connect_again(HOLDER);
    keep(HOLDER);
    expect_filled(HOLDER, 3);
    lane_set_elastic(rig.lane, RIG_JOB);
    regroup(1);
    memcpy(model, before, sizeof before);
    model_steps--;
    int heard = rig.workers[0].commits_count;
    say_anew(0, 3, RECORD_ANNOUNCE);
    rig_until(&rig, rig.workers[0].commits_count > heard);
    expect_commit(3);
    say_anew(0, 4, RECORD_ANNOUNCE);
    expect_commit(4);
    expect_kept(HOLDER, 4);
}

static void enter(uint32_t rank)
{
    rig_say(&rig, rank,
            (struct say){.piece = W,
                         .word = 1,
                         .epoch = 2,
                         .operation = RECORD_UPDATE,
                         .standing = RECORD_ENTERS,
                         .has_no_input = true,
                         .has_no_output = true});
}

/* A late worker must enter after the same round in all pieces of a tensor. A copy has no
 * information about the other pieces. */
static void no_rank_enters_after_a_round_known_only_from_a_copy(void **state)
{
    lose_lane_behind_a_copy_that_begins();
    lane_set_elastic(rig.lane, RIG_JOB);
    regroup(3);
    bring_copy();
    keep(HOLDER);
    say_anew(0, 3, RECORD_ANNOUNCE);
    enter(1);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        expect_error(rank, -EOWNERDEAD, "died with the lane");
    assert_int_equal(commits() + rig.workers[1].closed_count, 0);
}

/* Other pieces of the tensor may not have completed the round, and would repeat it with the new
 * ranks. The tensor's step would then mix both sets of ranks. */
static void after_a_change_of_ranks_no_word_ends_a_round_of_the_former_ranks(void **state)
{
    lose_lane_behind_a_copy_that_begins();
    lane_set_elastic(rig.lane, RIG_JOB);
    regroup(1);
    bring_copy();
    keep(HOLDER);
    say_anew(0, 3, RECORD_ANNOUNCE);
    expect_error(0, -EOWNERDEAD, "died with the lane");
    assert_int_equal(commits(), 0);
}

/* The coordinator had switched to new ranks before the lane died. The next lane receives the piece
 * with its new ranks. */
static void new_ranks_of_a_placed_piece_end_no_round_of_the_former_ranks(void **state)
{
    lose_lane_behind_a_copy_that_begins();
    rig_stop(&rig);
    rig_start(&rig, kind);
    rig_place_piece(&rig, 1,
                    (struct lane_piece){.id = W,
                                        .elements = ELEMENTS,
                                        .terms = {.rule = UPDATE_ADAM},
                                        .holder = NUMBER(HOLDER)},
                    true);
    rig_connect(&rig, 0, RIG_JOB, 0);
    rig.count = 1;
    tell(0, &usual);
    bring_copy();
    keep(HOLDER);
    say(0, 3, RECORD_UPDATE, RECORD_ANNOUNCE);
    expect_error(0, -EOWNERDEAD, "died with the lane");
    assert_int_equal(commits(), 0);
}

#define CASE(name) cmocka_unit_test_teardown(name, stop)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CASE(a_rank_with_the_result_learns_of_its_commit),
        CASE(a_rank_that_waits_for_the_result_learns_of_its_commit),
        CASE(a_present_state_is_rolled_back_for_any_state_of_its_copy),
        CASE(no_rank_enters_after_a_round_known_only_from_a_copy),
        CASE(after_a_change_of_ranks_no_word_ends_a_round_of_the_former_ranks),
        CASE(new_ranks_of_a_placed_piece_end_no_round_of_the_former_ranks),
    };
    kind = argc > 1 ? argv[1] : "shm";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
