/* Tests changes while a state has a copy (RULES.md of svc/lane, A49; svc/wire, W20). The holder of
 * the copy changes between rounds, during a round, and during a recovery. The lane or the ranks
 * change, too. */
#include "test/unit/lane/holder_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void rounds_wait_for_the_next_holder_which_gets_the_state_first(void **state)
{
    start_with_holder(3);
    memcpy(kept, rig_input(&rig, HOLDER, halves[0]), sizeof kept);
    /* the rounds of the pieces are known, so the holder is used at once */
    name(NUMBER(OTHER), true);
    expect_let_go(HOLDER);
    announce_all(4);
    expect_waiting();
    connect_holder(OTHER);
    expect_waiting();
    keep(OTHER);
    expect_filled(OTHER, 3);
    expect_commit(4);
    expect_kept(OTHER, 4);
    follow(5, 5);
    expect_kept(OTHER, 5);
    assert_memory_equal(rig_input(&rig, HOLDER, halves[0]), kept, sizeof kept);
}

static void a_holder_that_offers_before_it_is_named_is_stored(void **state)
{
    start_with_holder(2);
    connect_holder(OTHER);
    keep(OTHER);
    follow(3, 3);
    expect_kept(HOLDER, 3);
    assert_int_equal(stamp_of(OTHER, 3).round, 0);
    name(NUMBER(OTHER), false);
    expect_let_go(HOLDER);
    expect_filled(OTHER, 3);
    follow(4, 4);
    expect_kept(OTHER, 4);
}

static void a_holder_that_ends_before_it_is_named_is_removed(void **state)
{
    start_with_holder(2);
    connect_holder(OTHER);
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

static void a_round_under_way_goes_to_the_next_holder(void **state)
{
    start_with_holder(3);
    connect_holder(OTHER);
    keep(OTHER);
    rig_settle(&rig);
    begin_round(4);
    name(NUMBER(OTHER), false);
    expect_commit(4);
    expect_let_go(HOLDER);
    expect_kept(OTHER, 4);
    assert_int_equal(rig.workers[0].commits_count, 4);
}

static void without_a_holder_rounds_go_on(void **state)
{
    start_with_holder(3);
    memcpy(kept, rig_input(&rig, HOLDER, halves[0]), sizeof kept);
    end_connection(HOLDER);
    announce_all(4);
    expect_waiting();
    name(0, false);
    expect_commit(4);
    follow(5, 5);
    assert_memory_equal(rig_input(&rig, HOLDER, halves[0]), kept, sizeof kept);
}

/* After the copy, and before the next round, only one half of the copy has a state. The round of
 * this half is 6, and the round of the unused half is 0. Modulo 3 these rounds are equal. */
static void the_update_count_of_a_state_is_the_one_of_its_half(void **state)
{
    start_with_holder(6);
    end_connection(HOLDER);
    memset(rig_input(&rig, HOLDER, halves[0]), 0, 2 * HALF_BYTES);
    connect_again(HOLDER);
    keep(HOLDER);
    expect_filled(HOLDER, 6);
    lose_lane();
    bring_copy();
    keep(HOLDER);
    announce_all(7);
    expect_commit(7);
    expect_kept(HOLDER, 7);
}

static void the_former_holders_copy_is_read_before_the_next_one_counts(void **state)
{
    start_with_holder(4);
    lose_lane();
    name(NUMBER(OTHER), true);
    connect_holder(OTHER);
    keep(OTHER);
    announce_all(5);
    expect_waiting();
    bring_copy();
    keep(HOLDER);
    expect_filled(OTHER, 4);
    expect_let_go(HOLDER);
    expect_commit(5);
    expect_kept(OTHER, 5);
    assert_memory_equal(rig_input(&rig, HOLDER, halves[0]), kept, sizeof kept);
}

static void a_late_next_holder_delays_a_state_read_from_the_former(void **state)
{
    start_with_holder(4);
    lose_lane();
    name(NUMBER(OTHER), true);
    bring_copy();
    keep(HOLDER);
    announce_all(5);
    expect_let_go(HOLDER);
    expect_waiting();
    connect_holder(OTHER);
    keep(OTHER);
    expect_filled(OTHER, 4);
    expect_commit(5);
    expect_kept(OTHER, 5);
}

/* Runs until some, but not all chunks have arrived. */
static void begin_copy_with_other(void)
{
    name(NUMBER(OTHER), false);
    connect_holder(OTHER);
    keep(OTHER);
    rig_until_busy(&rig);
}

static void a_holder_lost_during_the_write_of_the_state_gets_the_state_again(void **state)
{
    start_with_holder(3);
    begin_copy_with_other();
    end_connection(OTHER);
    announce_all(4);
    expect_waiting();
    connect_again(OTHER);
    rig.workers[OTHER].backed_count = 0;
    keep(OTHER);
    expect_commit(4);
    expect_kept(OTHER, 4);
}

/* At most eight holders of a job may be connected to a lane. After some time the lane disconnects a
 * former holder, so that the named holder can connect. */
static void a_ninth_holder_waits_until_another_is_disconnected(void **state)
{
    enum { FIRST = OTHER, NINTH = OTHER + 7 };
    start_with_holder(2);
    for (uint32_t i = FIRST; i < NINTH; i++)
        connect_holder(i);
    struct rig_worker *w = &rig.workers[NINTH];
    struct record_connect ticket = rig_ticket(&rig, RIG_JOB, RECORD_HOLDER | NUMBER(NINTH));
    assert_int_equal(fabric_open(kind, NULL, &w->fabric), 0);
    assert_int_equal(region_create(RIG_REGION_BYTES, &w->region), 0);
    assert_int_equal(fabric_connect(w->fabric, rig.address, &ticket, sizeof ticket, w, &w->conn),
                     0);
    rig_until(&rig, w->is_closed);
    assert_int_equal(w->refused, EBUSY);
    end_connection(FIRST);
    connect_again(NINTH);
    name(NUMBER(NINTH), false);
    keep(NINTH);
    follow(3, 3);
    expect_kept(NINTH, 3);
}

/* The holder has detected the end of its connection. The lane may detect this end much later. */
static void a_holder_that_connects_a_second_time_begins_anew(void **state)
{
    start_with_holder(2);
    struct rig_worker *w = &rig.workers[OTHER];
    struct record_connect ticket = rig_ticket(&rig, RIG_JOB, RECORD_HOLDER | NUMBER(HOLDER));
    assert_int_equal(fabric_open(kind, NULL, &w->fabric), 0);
    assert_int_equal(fabric_connect(w->fabric, rig.address, &ticket, sizeof ticket, w, &w->conn),
                     0);
    rig_until(&rig, w->is_closed);
    assert_int_equal(w->refused, EBUSY);
    rig_until(&rig, rig.workers[HOLDER].is_closed);
    connect_again(HOLDER);
    keep(HOLDER);
    follow(3, 3);
    expect_kept(HOLDER, 3);
}

/* ---- a new owner that receives the state ---- */

/* Releases and drops the piece. The new owner waits for the reports. Returns the size of the
 * state. */
static size_t let_go_of_lane(struct lane_standing *ret_standing)
{
    size_t bytes = let_go(ret_standing);
    lose_lane();
    return bytes;
}

static void a_lane_that_receives_the_state_continues_its_copy(void **state)
{
    struct lane_standing standing;
    start_with_holder(4);
    hand_over(let_go_of_lane(&standing), 4);
    announce_all(5);
    expect_waiting();
    bring_copy();
    keep(HOLDER);
    expect_commit(5);
    expect_kept(HOLDER, 5);
    assert_int_equal(rig.workers[HOLDER].backed_count, 0); /* the holder already had the state */
}

static void a_holder_may_come_before_the_state_is_handed_over(void **state)
{
    struct lane_standing standing;
    start_with_holder(4);
    size_t bytes = let_go_of_lane(&standing);
    bring_copy();
    keep(HOLDER);
    rig_settle(&rig);
    hand_over(bytes, 4);
    follow(5, 6);
    expect_kept(HOLDER, 6);
}

/* A state that moved to the new owner counts like a state that the owner has read from a copy. */
static void a_state_that_is_handed_over_makes_the_next_holder_count(void **state)
{
    struct lane_standing standing;
    start_with_holder(4);
    size_t bytes = let_go_of_lane(&standing);
    name(NUMBER(OTHER), true);
    hand_over(bytes, 4);
    announce_all(5);
    connect_holder(OTHER);
    keep(OTHER);
    expect_filled(OTHER, 4);
    expect_commit(5);
    expect_kept(OTHER, 5);
}

static void a_round_without_its_holder_is_not_finished_for_a_move(void **state)
{
    struct lane_standing standing;
    start_with_holder(3);
    begin_round(4);
    end_connection(HOLDER);
    hand_over(let_go_of_lane(&standing), 3);
    assert_int_equal(standing.round, 3);
    announce_all(4);
    bring_copy();
    keep(HOLDER);
    expect_commit(4);
    expect_kept(HOLDER, 4);
}

/* The holder is lost after the lane has sent the word of the result. */
static void a_rank_with_an_unfinished_result_lends_its_gradient_again(void **state)
{
    struct lane_standing standing;
    start_with_holder(3);
    begin_round(4);
    end_connection(HOLDER);
    hand_over(let_go_of_lane(&standing), 3);
    lend(0, 4, RECORD_HOLDS);
    update(1, 4);
    bring_copy();
    keep(HOLDER);
    await_commit(4);
    model_update(UPDATE_ADAM, 4, &usual);
    expect_model(1); /* rank 0 has the result */
    follow(5, 5);
    expect_kept(HOLDER, 5);
}

/* ---- other ranks ---- */

static void a_copy_stays_in_place_when_ranks_leave(void **state)
{
    start_with_holder(3);
    lane_set_elastic(rig.lane, RIG_JOB);
    end_connection(1);
    regroup(1);
    say_anew(0, 3, RECORD_IDLE);
    say_anew(0, 4, RECORD_ANNOUNCE);
    expect_commit(4);
    expect_kept(HOLDER, 4);
    assert_int_equal(rig.workers[HOLDER].is_closed, false);
}

static void a_rank_and_the_holder_may_go_in_the_same_round(void **state)
{
    start_with_holder(3);
    lane_set_elastic(rig.lane, RIG_JOB);
    begin_round(4);
    end_connection(HOLDER);
    end_connection(1);
    regroup(1);
    say_anew(0, 4, RECORD_ANNOUNCE);
    rig_settle(&rig);
    assert_int_equal(rig.workers[0].errors_count, 0);
    assert_int_equal(rig.workers[0].commits_count, 3);
    connect_again(HOLDER);
    keep(HOLDER);
    expect_commit(4);
    expect_kept(HOLDER, 4);
}

static void a_holder_that_returns_before_the_ranks_are_informed_delays_no_round(void **state)
{
    start_with_holder(3);
    lane_set_elastic(rig.lane, RIG_JOB);
    begin_round(4);
    end_connection(HOLDER);
    end_connection(1);
    connect_again(HOLDER);
    keep(HOLDER); /* all ranks have announced the round: the copy starts again, and needs no
                   * input */
    rig_settle(&rig);
    assert_int_equal(rig.workers[0].errors_count, 0);
    assert_int_equal(rig.workers[0].commits_count, 3);
    regroup(1);
    say_anew(0, 4, RECORD_ANNOUNCE);
    expect_commit(4);
    expect_kept(HOLDER, 4);
}

/* A copied result is not summed: the rank with the result sends the result and no gradient. */
static void a_result_that_is_copied_is_copied_again_when_the_holder_goes(void **state)
{
    start_with_holder(4);
    lane_set_elastic(rig.lane, RIG_JOB);
    regroup(3);
    int before = commits();
    memset(rig_landing(&rig, 1, 0), 0, BYTES);
    say_anew(0, 4, RECORD_HOLDS);
    say_anew(1, 4, RECORD_ANNOUNCE);
    rig_until_busy(&rig);
    end_connection(HOLDER);
    expect_waiting();
    connect_again(HOLDER);
    keep(HOLDER);
    rig_until(&rig, commits() == before + 2);
    expect_model(0);
    expect_kept(HOLDER, 4);
}

/* The tensor is undeclared at the moment at which the holder is informed. */
static void a_piece_may_be_dropped_while_its_next_copy_is_made(void **state)
{
    start_with_holder(3);
    begin_copy_with_other();
    lane_drop(rig.lane, RIG_JOB, pieces, 1);
    end_connection(OTHER);
    rig_settle(&rig);
    assert_int_equal(lane_release(rig.lane, RIG_JOB, pieces, 1), -ENOENT);
}

/* Moves the piece to a lane with another holder. The holder connects before the ranks. */
static size_t meet_at_another_lane(void)
{
    struct lane_standing standing;
    start_with_holder(4);
    size_t bytes = let_go_of_lane(&standing);
    assert_int_equal(lane_copied(rig.lane, RIG_JOB, pieces, 1), -EAGAIN);
    connect_holder(HOLDER);
    assert_int_equal(lane_copied(rig.lane, RIG_JOB, pieces, 1), -EAGAIN);
    uint32_t news = rig.rests;
    keep(HOLDER);
    rig_until(&rig, lane_copied(rig.lane, RIG_JOB, pieces, 1) == 0);
    assert_int_equal(rig.rests, news + 1);
    return bytes;
}

/* A piece can come back to its lane, because a move was undone or the other lane was lost. If the
 * holder's host has failed, a transfer to the holder does not end by itself. */
static void a_piece_that_was_dropped_while_it_was_copied_can_be_placed_again(void **state)
{
    struct lane_piece piece = {.id = W,
                               .dtype = REDUCE_F32,
                               .elements = ELEMENTS,
                               .task = 1,
                               .tensor = "w",
                               .terms = {.rule = UPDATE_ADAM},
                               .holder = NUMBER(HOLDER)};
    hand_over(meet_at_another_lane(), 4);
    rig.workers[HOLDER].is_stopped = true;
    rig_until_busy(&rig);
    lane_drop(rig.lane, RIG_JOB, pieces, 1);
    rig_until(&rig, lane_place(rig.lane, RIG_JOB, "job", RANKS, 2, true, &piece, 1) == 0);
}

static void a_piece_does_not_move_before_its_copy_was_read(void **state)
{
    start_with_holder(4);
    lose_lane();
    assert_int_equal(lane_may_move(rig.lane, RIG_JOB, pieces, 1), -EAGAIN);
    bring_copy();
    keep(HOLDER);
    assert_int_equal(lane_may_move(rig.lane, RIG_JOB, pieces, 1), -EAGAIN);
    say(0, 4, RECORD_UPDATE, RECORD_IDLE);
    say(1, 4, RECORD_UPDATE, RECORD_IDLE);
    rig_until(&rig, lane_may_move(rig.lane, RIG_JOB, pieces, 1) == 0);
}

static void a_received_state_is_copied_before_any_standing(void **state)
{
    size_t bytes = meet_at_another_lane();
    uint32_t news = rig.rests;
    hand_over(bytes, 4);
    assert_int_equal(lane_copied(rig.lane, RIG_JOB, pieces, 1), -EAGAIN);
    rig_until(&rig, lane_copied(rig.lane, RIG_JOB, pieces, 1) == 0);
    assert_int_equal(rig.rests, news + 1);
    expect_filled(HOLDER, 4);
    announce_all(5);
    expect_commit(5);
    expect_kept(HOLDER, 5);
}

static void a_copy_of_a_received_state_is_whole_only_with_its_holder(void **state)
{
    size_t bytes = meet_at_another_lane();
    end_connection(HOLDER);
    hand_over(bytes, 4);
    rig_settle(&rig);
    assert_int_equal(lane_copied(rig.lane, RIG_JOB, pieces, 1), -EAGAIN);
    connect_again(HOLDER);
    keep(HOLDER);
    rig_until(&rig, lane_copied(rig.lane, RIG_JOB, pieces, 1) == 0);
    expect_filled(HOLDER, 4);
    name(0, false); /* from here on the coordinator wants no copy of the piece */
    assert_int_equal(lane_copied(rig.lane, RIG_JOB, pieces, 1), 0);
    lane_drop(rig.lane, RIG_JOB, pieces, 1);
    assert_int_equal(lane_copied(rig.lane, RIG_JOB, pieces, 1), -ENOENT);
}

/* A host has failed with the owner and a rank, so the copy is older than the change of ranks. */
static void a_copy_is_read_for_ranks_that_have_changed_since(void **state)
{
    start_with_holder(3);
    lose_lane();
    lane_set_elastic(rig.lane, RIG_JOB);
    regroup(1);
    bring_copy();
    keep(HOLDER);
    say_anew(0, 3, RECORD_IDLE);
    say_anew(0, 4, RECORD_ANNOUNCE);
    expect_commit(4);
    expect_kept(HOLDER, 4);
}

/* ---- lost and leaving ranks ---- */

/* The host of the holder may have failed without any message to the lane. */
static void a_new_owner_does_not_wait_for_a_holder_that_is_lost(void **state)
{
    start_with_holder(4);
    lose_lane();
    bring_copy();
    keep(HOLDER);
    rig_settle(&rig);
    rig.workers[HOLDER].is_stopped = true;
    name(NUMBER(OTHER), false);
    connect_holder(OTHER);
    keep(OTHER);
    announce_all(5);
    rig_until(&rig, errors() == RANKS);
    assert_int_equal(rig.workers[0].error.code, -EOWNERDEAD);
    rig.workers[HOLDER].is_stopped = false;
    rig_until(&rig, rig.workers[HOLDER].is_closed);
}

static void leave(uint32_t rank)
{
    const struct record_leave leave = {.kind = RECORD_LEAVE};
    assert_int_equal(fabric_send(rig.workers[rank].conn, &leave, sizeof leave, NULL, 0), 0);
    fabric_flush(rig.workers[rank].fabric);
}

static void expect_hopeless(void)
{
    rig_until(&rig, rig.workers[0].errors_count == 1);
    assert_int_equal(rig.workers[0].error.code, -EPIPE);
    assert_int_equal(rig.workers[0].commits_count, 3);
}

static void a_leave_during_a_copy_ends_the_rounds_that_wait_for_the_rank(void **state)
{
    start_with_holder(3);
    update(0, 4);
    rig_settle(&rig);
    begin_copy_with_other();
    leave(1);
    (void)lane_poll(rig.lane, rig_now());
    assert_int_equal(rig.workers[0].errors_count, 0); /* the copy is being made */
    expect_hopeless();
}

/* The result contained the rank's gradient. A repeated round without this gradient would have
 * another result. */
static void a_round_is_not_made_again_without_a_rank_that_has_left(void **state)
{
    start_with_holder(3);
    update(0, 4);
    rig_settle(&rig); /* messages on different connections have no order */
    update(1, 4);
    leave(1);
    rig_until_busy(&rig);
    name(NUMBER(OTHER), false);
    connect_holder(OTHER);
    keep(OTHER);
    expect_hopeless();
}

#define CASE(name) cmocka_unit_test_teardown(name, stop)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CASE(rounds_wait_for_the_next_holder_which_gets_the_state_first),
        CASE(a_holder_that_offers_before_it_is_named_is_stored),
        CASE(a_holder_that_ends_before_it_is_named_is_removed),
        CASE(a_round_under_way_goes_to_the_next_holder),
        CASE(without_a_holder_rounds_go_on),
        CASE(the_update_count_of_a_state_is_the_one_of_its_half),
        CASE(the_former_holders_copy_is_read_before_the_next_one_counts),
        CASE(a_late_next_holder_delays_a_state_read_from_the_former),
        CASE(a_holder_lost_during_the_write_of_the_state_gets_the_state_again),
        CASE(a_ninth_holder_waits_until_another_is_disconnected),
        CASE(a_holder_that_connects_a_second_time_begins_anew),
        CASE(a_lane_that_receives_the_state_continues_its_copy),
        CASE(a_holder_may_come_before_the_state_is_handed_over),
        CASE(a_state_that_is_handed_over_makes_the_next_holder_count),
        CASE(a_round_without_its_holder_is_not_finished_for_a_move),
        CASE(a_rank_with_an_unfinished_result_lends_its_gradient_again),
        CASE(a_copy_stays_in_place_when_ranks_leave),
        CASE(a_rank_and_the_holder_may_go_in_the_same_round),
        CASE(a_holder_that_returns_before_the_ranks_are_informed_delays_no_round),
        CASE(a_result_that_is_copied_is_copied_again_when_the_holder_goes),
        CASE(a_piece_may_be_dropped_while_its_next_copy_is_made),
        CASE(a_piece_that_was_dropped_while_it_was_copied_can_be_placed_again),
        CASE(a_piece_does_not_move_before_its_copy_was_read),
        CASE(a_received_state_is_copied_before_any_standing),
        CASE(a_copy_of_a_received_state_is_whole_only_with_its_holder),
        CASE(a_copy_is_read_for_ranks_that_have_changed_since),
        CASE(a_new_owner_does_not_wait_for_a_holder_that_is_lost),
        CASE(a_leave_during_a_copy_ends_the_rounds_that_wait_for_the_rank),
        CASE(a_round_is_not_made_again_without_a_rank_that_has_left),
    };
    kind = argc > 1 ? argv[1] : "shm";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
