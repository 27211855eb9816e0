/* Tests states with a copy on another aggregator (RULES.md of svc/lane, A49; svc/wire, W20): when
 * rounds wait for the holder of the copy, what the copy contains, and how a new owner starts from
 * the copy. */
#include "test/unit/lane/holder_rig.h"
#include "test/unit/skip.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* ---- rounds ---- */

static void no_round_begins_before_the_holder_has_offered_memory(void **state)
{
    place(false);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        say(rank, 1, RECORD_BROADCAST, RECORD_ANNOUNCE);
    expect_waiting();
    connect_holder(HOLDER);
    expect_waiting();
    assert_int_equal(rig.workers[1].words_count, 0);
    keep(HOLDER);
    await_commit(1);
    assert_true(has_stamp(HOLDER, 1, 0));
}

static void a_round_and_its_stamp_are_stored_in_their_half_before_the_commit_is_sent(void **state)
{
    start_with_holder(1);
    assert_memory_equal(copy_of(HOLDER, 1), model[0], BYTES);
    for (uint64_t round = 2; round <= 5; round++) {
        int before = commits();
        announce_all(round);
        while (commits() == before) {
            assert_true(has_stamp(HOLDER, round - 1, round - 2));
            rig_turn(&rig);
        }
        assert_true(has_stamp(HOLDER, round, round - 1));
        expect_commit(round);
        expect_kept(HOLDER, round);
    }
    assert_int_equal(rig.workers[HOLDER].backed_count, 0);
}

static void no_round_is_committed_while_its_state_is_on_the_way(void **state)
{
    start_with_holder(2);
    if (strcmp(kind, "shm") == 0)
        return; /* a write to mapped memory is complete at once */
    rig.workers[HOLDER].is_stopped = true;
    announce_all(3);
    expect_waiting();
    assert_false(has_stamp(HOLDER, 3, 2));
    rig.workers[HOLDER].is_stopped = false;
    expect_commit(3);
    expect_kept(HOLDER, 3);
}

static void offer_as_worker(uint32_t rank)
{
    const struct record_backup told = {.kind = RECORD_BACKUP,
                                       .piece = W,
                                       .offset = {STATE_BYTES, STATE_BYTES},
                                       .since = RECORD_ROUND_NONE};
    send_backup(rank, &told);
}

static void a_worker_cannot_offer_where_a_holder_is_named(void **state)
{
    place(false);
    offer_as_worker(1);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        say(rank, 1, RECORD_BROADCAST, RECORD_ANNOUNCE);
    expect_waiting();
    connect_holder(HOLDER);
    keep(HOLDER);
    await_commit(1);
    offer_as_worker(1);
    rig_settle(&rig);
    assert_int_equal(rig.workers[1].backed_count, 0);
    assert_true(has_stamp(HOLDER, 1, 0));
}

static void a_round_under_way_is_repeated_with_the_holders_next_connection(void **state)
{
    start_with_holder(3);
    begin_round(4);
    end_connection(HOLDER);
    expect_waiting();
    connect_again(HOLDER);
    expect_waiting();
    keep(HOLDER);
    expect_commit(4);
    expect_kept(HOLDER, 4);
    assert_int_equal(rig.workers[0].commits_count, 4); /* one commit for each of four rounds */
    follow(5, 6);
    expect_kept(HOLDER, 6);
    assert_int_equal(rig.failures, 0);
}

/* In one turn, a page of the copy fails and the lane writes the stamp. The stamp is after this page
 * in memory (A7). */
static void a_failed_page_of_a_copy_leaves_the_copy_without_a_stamp(void **state)
{
    start_with_holder(3);
    if (strcmp(kind, "shm") != 0)
        skip_because("over this transport no memory is mapped");
    rig_break_page(&rig, HOLDER, copy_of(HOLDER, 4) + ARRAYS * ELEMENTS - 2048);
    announce_all(4);
    expect_waiting();
    assert_false(has_stamp(HOLDER, 4, 3));
    assert_int_equal(rig.workers[0].words_count, 3);
    rig_until(&rig, rig.workers[HOLDER].is_closed);
    connect_again(HOLDER);
    keep(HOLDER);
    expect_commit(4);
    expect_kept(HOLDER, 4);
}

static void between_two_rounds_a_holder_may_come_and_go(void **state)
{
    start_with_holder(2);
    for (uint64_t round = 3; round <= 5; round++) {
        end_connection(HOLDER);
        announce_all(round);
        expect_waiting();
        connect_again(HOLDER);
        keep(HOLDER);
        expect_commit(round);
        expect_kept(HOLDER, round);
    }
    assert_int_equal(rig.workers[HOLDER].backed_count, 0); /* the lane never reported a new copy,
                                                            * because the holder had the state each
                                                            * time */
}

/* A holder that has removed the stamps has no copy, even if it received other messages before. */
static void a_holder_that_returns_without_a_copy_gets_the_state_first(void **state)
{
    start_with_holder(4);
    end_connection(HOLDER);
    memset(rig_input(&rig, HOLDER, halves[0]), 0, 2 * HALF_BYTES);
    connect_again(HOLDER);
    keep(HOLDER);
    rig_until(&rig, rig.workers[HOLDER].backed_count == 1);
    assert_int_equal(rig.workers[HOLDER].backed.round, 4);
    assert_int_equal(rig.workers[HOLDER].backed.steps, 3);
    expect_kept(HOLDER, 4);
    follow(5, 5);
    expect_kept(HOLDER, 5);
}

/* ---- a new owner ---- */

static void a_new_owner_takes_the_committed_state_from_the_holder(void **state)
{
    start_with_holder(4);
    lose_lane();
    say(0, 4, RECORD_UPDATE, RECORD_IDLE);
    update(1, 5);
    expect_waiting(); /* the lane waits, because the holder with the state may still connect */
    bring_copy();
    keep(HOLDER);
    rig_settle(&rig);
    update(0, 5);
    expect_commit(5);
    expect_kept(HOLDER, 5);
    follow(6, 7);
    expect_kept(HOLDER, 7);
    assert_int_equal(rig.workers[HOLDER].backed_count, 0);
}

static void a_new_owner_gets_the_copy_before_the_records_of_the_ranks(void **state)
{
    start_with_holder(4);
    lose_lane();
    bring_copy();
    keep(HOLDER);
    rig_settle(&rig);
    announce_all(5);
    expect_commit(5);
    expect_kept(HOLDER, 5);
}

/* State and stamp of round 4 had arrived at the holder, but the round was not committed. The stamp
 * must be removed before the repeated round writes its first byte. */
static void a_round_that_was_copied_but_not_committed_is_repeated(void **state)
{
    start_with_holder(3);
    update_all(4);
    lose_lane();
    bring_copy();
    assert_true(has_stamp(HOLDER, 4, 3));
    keep(HOLDER);
    update(0, 4);
    say(1, 3, RECORD_UPDATE, RECORD_IDLE);
    expect_waiting();
    assert_true(has_stamp(HOLDER, 4, 3));
    update(1, 4);
    rig_until(&rig, stamp_of(HOLDER, 4).round == 0);
    assert_int_equal(commits(), 0);
    expect_commit(4);
    expect_kept(HOLDER, 4);
    follow(5, 6);
}

static void a_lane_that_is_lost_again_before_a_round_leaves_the_copy_whole(void **state)
{
    start_with_holder(4);
    lose_lane();
    bring_copy();
    keep(HOLDER);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        say(rank, 4, RECORD_UPDATE, RECORD_IDLE);
    rig_settle(&rig);
    lose_lane();
    bring_copy();
    keep(HOLDER);
    announce_all(5);
    expect_commit(5);
    expect_kept(HOLDER, 5);
}

/* Another aggregator has become the holder. The copy starts with the first round that waits for
 * this holder. */
static void records_of_all_ranks_are_read_though_the_next_holder_gets_the_state_first(void **state)
{
    start_with_holder(3);
    lose_lane();
    name(NUMBER(OTHER), true);
    connect_holder(OTHER);
    keep(OTHER);
    bring_copy();
    keep(HOLDER);
    lend(0, 4, RECORD_HOLDS);
    update(1, 4);
    expect_filled(OTHER, 3);
    await_commit(4);
    model_update(UPDATE_ADAM, 4, &usual);
    expect_model(1); /* rank 0 has the result */
    follow(5, 5);
    expect_kept(OTHER, 5);
}

static void a_copy_is_read_again_after_its_holder_was_lost_during_the_read(void **state)
{
    start_with_holder(4);
    lose_lane();
    bring_copy();
    announce_all(5);
    rig_settle(&rig);
    keep(HOLDER);
    rig_until_busy(&rig);
    end_connection(HOLDER);
    expect_waiting();
    connect_again(HOLDER);
    keep(HOLDER);
    expect_commit(5);
    expect_kept(HOLDER, 5);
}

static void a_copy_of_other_rounds_than_the_committed_one_is_no_copy(void **state)
{
    start_with_holder(3);
    lose_lane();
    bring_copy();
    keep(HOLDER);
    announce_all(5); /* round 4 is committed, and the copy contains rounds 2 and 3 */
    expect_error(0, -EOWNERDEAD, "died with the lane");
    expect_error(1, -EOWNERDEAD, "died with the lane");
}

static void a_holder_without_a_copy_does_not_hide_the_loss(void **state)
{
    start_with_holder(3);
    lose_lane();
    connect_holder(HOLDER);
    keep(HOLDER);
    announce_all(4);
    expect_error(0, -EOWNERDEAD, "died with the lane");
}

/* ---- states without a copy ---- */

static void expect_figures(uint32_t copied, uint32_t empty)
{
    struct lane_job_use use = rig_use(&rig);
    assert_int_equal(use.states, 1);
    assert_int_equal(use.copied, copied);
    assert_int_equal(use.empty, empty);
}

static void a_piece_without_parameters_needs_no_copy(void **state)
{
    place(false);
    connect_holder(HOLDER);
    keep(HOLDER);
    expect_figures(0, 1);
    lose_lane();
    expect_figures(0, 0); /* the lane has no state that counts as copied or as empty */
    for (uint32_t rank = 0; rank < RANKS; rank++)
        say(rank, 0, RECORD_BROADCAST, RECORD_IDLE);
    connect_holder(HOLDER);
    keep(HOLDER);
    rig_settle(&rig);
    expect_figures(0, 1);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        say(rank, 1, RECORD_BROADCAST, RECORD_ANNOUNCE);
    await_commit(1);
    expect_figures(1, 0);
}

static void a_piece_with_parameters_needs_a_copy_until_one_exists(void **state)
{
    start_with_holder(3);
    expect_figures(1, 0);
    lose_lane();
    expect_figures(0, 0);
    bring_copy();
    keep(HOLDER);
    announce_all(4);
    expect_commit(4);
    expect_figures(1, 0);
    lose_lane();
    connect_holder(HOLDER);
    keep(HOLDER); /* an empty copy */
    announce_all(5);
    expect_error(0, -EOWNERDEAD, "died with the lane");
    expect_figures(0, 1);
}

/* ---- replica holders with false messages ---- */

/* Expects the end of the holder's connection. The round that waits for the holder is completed
 * after the holder has connected again. */
static void expect_cut_off(void)
{
    rig_until(&rig, rig.workers[HOLDER].is_closed);
    announce_all(3);
    expect_waiting();
    connect_again(HOLDER);
    keep(HOLDER);
    expect_commit(3);
    expect_kept(HOLDER, 3);
    assert_int_equal(rig.failures, 0);
}

static void a_holder_that_announces_is_cut_off_and_the_job_continues(void **state)
{
    start_with_holder(2);
    say(HOLDER, 3, RECORD_UPDATE, RECORD_ANNOUNCE);
    expect_cut_off();
}

static void a_holder_without_room_for_the_stamp_is_cut_off(void **state)
{
    struct record_backup told = backup();
    start_with_holder(2);
    /* the memory has room for the state, but not for its stamp */
    told.offset[1] = RIG_REGION_BYTES - STATE_BYTES;
    send_backup(HOLDER, &told);
    expect_cut_off();
}

static void a_holder_that_offers_memory_never_lent_is_cut_off_when_named(void **state)
{
    struct record_backup told = backup();
    start_with_holder(2);
    told.region = 5;
    connect_holder(OTHER);
    send_backup(OTHER, &told); /* sent to a lane that is not polled yet */
    follow(3, 3);
    name(NUMBER(OTHER), false);
    rig_until(&rig, rig.workers[OTHER].is_closed);
    name(NUMBER(HOLDER), false);
    keep(HOLDER);
    follow(4, 4);
    expect_kept(HOLDER, 4);
    assert_int_equal(rig.failures, 0);
}

#define CASE(name) cmocka_unit_test_teardown(name, stop)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CASE(no_round_begins_before_the_holder_has_offered_memory),
        CASE(a_round_and_its_stamp_are_stored_in_their_half_before_the_commit_is_sent),
        CASE(no_round_is_committed_while_its_state_is_on_the_way),
        CASE(a_worker_cannot_offer_where_a_holder_is_named),
        CASE(a_round_under_way_is_repeated_with_the_holders_next_connection),
        CASE(a_failed_page_of_a_copy_leaves_the_copy_without_a_stamp),
        CASE(between_two_rounds_a_holder_may_come_and_go),
        CASE(a_holder_that_returns_without_a_copy_gets_the_state_first),
        CASE(a_new_owner_takes_the_committed_state_from_the_holder),
        CASE(a_new_owner_gets_the_copy_before_the_records_of_the_ranks),
        CASE(a_round_that_was_copied_but_not_committed_is_repeated),
        CASE(a_lane_that_is_lost_again_before_a_round_leaves_the_copy_whole),
        CASE(records_of_all_ranks_are_read_though_the_next_holder_gets_the_state_first),
        CASE(a_copy_is_read_again_after_its_holder_was_lost_during_the_read),
        CASE(a_copy_of_other_rounds_than_the_committed_one_is_no_copy),
        CASE(a_holder_without_a_copy_does_not_hide_the_loss),
        CASE(a_piece_without_parameters_needs_no_copy),
        CASE(a_piece_with_parameters_needs_a_copy_until_one_exists),
        CASE(a_holder_that_announces_is_cut_off_and_the_job_continues),
        CASE(a_holder_without_room_for_the_stamp_is_cut_off),
        CASE(a_holder_that_offers_memory_never_lent_is_cut_off_when_named),
    };
    kind = argc > 1 ? argv[1] : "shm";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
