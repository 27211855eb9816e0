/* Tests a piece that moves between lanes while its job trains (A26 and A28 of svc/lane):
 * rounds that end at the source, waiting rounds, and rounds at the target. test_lane_state
 * tests the moved state. */
#include "svc/base/clock.h"
#include "svc/lane/job/table.h"
#include "test/unit/lane/moving_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* number of elements that need several turns of a lane */
#define LONG (RIG_LANDING / sizeof(float))
#define SHORT 1000

/* All ranks announce, and the lane starts the round. */
static void begin_round(uint64_t round, float sum)
{
    for (uint32_t rank = 0; rank < moving.from.count; rank++)
        push(&moving.from, rank, round, rank == 0 ? sum - (float)(moving.from.count - 1) : 1);
    rig_until_busy(&moving.from);
}

/* ---- release ---- */

static void a_round_that_has_begun_is_finished_and_no_other_begins(void **state)
{
    moving_start(2, LONG, (struct lane_terms){0});
    begin_round(1, 5);
    assert_int_equal(lane_release(moving.from.lane, RIG_JOB, moved, 1), 0);
    assert_int_equal(lane_rested(moving.from.lane, RIG_JOB, moved, 1), 0);
    assert_int_equal(moving.from.rests, 0);
    expect_commit(&moving.from, 0, 1);
    expect_commit(&moving.from, 1, 1);
    expect(&moving.from, 1, 5);
    assert_int_equal(lane_rested(moving.from.lane, RIG_JOB, moved, 1), 1);
    assert_int_equal(moving.from.rests, 1);
    for (uint32_t rank = 0; rank < 2; rank++)
        push(&moving.from, rank, 2, 4);
    rig_settle(&moving.from);
    assert_int_equal(moving.from.workers[0].words_count, 1);
    rig_until(&moving.from, lane_is_quiet(moving.from.lane));
}

/* The next round is announced while the last round is summed. Without the release, the commit of
 * the last round would start the next round. */
static void announcements_before_the_end_of_the_round_wait_too(void **state)
{
    moving_start(2, LONG / 2, (struct lane_terms){0});
    begin_round(1, 5);
    for (uint32_t rank = 0; rank < 2; rank++)
        rig_say(&moving.from, rank,
                (struct say){.piece = MOVED,
                             .word = 2,
                             .round = 2,
                             .elements = LONG / 2,
                             .offset = RIG_LANDING / 2});
    assert_int_equal(lane_release(moving.from.lane, RIG_JOB, moved, 1), 0);
    rig_until(&moving.from, lane_rested(moving.from.lane, RIG_JOB, moved, 1) == 1);
    rig_settle(&moving.from);
    assert_int_equal(moving.from.workers[0].words_count, 1);
    lane_thaw(moving.from.lane, RIG_JOB, moved, 1);
    expect_commit(&moving.from, 0, 2);
    expect_commit(&moving.from, 1, 2);
}

static void a_thaw_serves_waiting_announcements(void **state)
{
    moving_start(2, SHORT, (struct lane_terms){0});
    do_round(&moving.from, 1, 3);
    moving_release();
    assert_int_equal(moving.from.rests, 0); /* the piece was already idle at the release */
    push(&moving.from, 0, 2, 4);
    push(&moving.from, 1, 2, 5);
    rig_settle(&moving.from);
    assert_int_equal(moving.from.workers[0].words_count, 1);
    lane_thaw(moving.from.lane, RIG_JOB, moved, 1);
    expect_commit(&moving.from, 0, 2);
    expect(&moving.from, 0, 9);
    assert_int_equal(lane_is_releasing(moving.from.lane, RIG_JOB, moved, 1), -ECANCELED);
}

static void a_frozen_piece_keeps_announcements_and_answers_queries(void **state)
{
    struct record_query query = {.kind = RECORD_QUERY, .word = 1, .piece = MOVED, .round = 1};
    moving_start(2, SHORT, (struct lane_terms){0});
    push(&moving.from, 0, 1, 4);
    rig_settle(&moving.from);
    moving_release();
    assert_int_equal(fabric_send(moving.from.workers[0].conn, &query, sizeof query, NULL, 0), 0);
    rig_until(&moving.from, moving.from.workers[0].missing_count == 1);
    assert_int_equal(moving.from.workers[0].missing.ranks[0], 2);
    assert_true(lane_is_quiet(moving.from.lane));
    lane_thaw(moving.from.lane, RIG_JOB, moved, 1);
    push(&moving.from, 1, 1, 5);
    expect_commit(&moving.from, 0, 1);
    expect(&moving.from, 0, 9);
}

/* Rank 0 is in the set of round 1, and has not received the COMMIT of this round before the move.
 * The rank is stopped until round 3 has closed without the rank. The rank still has the values of
 * round 1. */
static void a_rank_with_a_result_is_told_the_round_of_this_result(void **state)
{
    const struct rig_worker *late = &moving.to.workers[0];
    moving_start(3, SHORT, (struct lane_terms){.quorum = QUORUM_FIRST, .bound = 2});
    push(&moving.from, 0, 1, 2);
    push(&moving.from, 2, 1, 6);
    expect_commit(&moving.from, 0, 1);
    moving_move(1);
    for (uint64_t round = 2; round <= 3; round++) {
        push(&moving.to, 1, round, 2);
        push(&moving.to, 2, round, 6);
        expect_commit(&moving.to, 1, round);
        expect_commit(&moving.to, 2, round);
    }
    stand(&moving.to, 0, 1, RECORD_HOLDS);
    rig_until(&moving.to, late->closed_count == 1);
    assert_int_equal(late->closed[0].round, 1);
    /* the rank continues with the next round, and is late again */
    push(&moving.to, 0, 2, 1000);
    rig_until(&moving.to, late->closed_count == 2);
    assert_int_equal(late->closed[1].round, 3);
    expect(&moving.to, 0, 8);
    assert_int_equal(late->words_count + late->errors_count, 0);
}

/* ---- time of the release ---- */

static struct lane_wish wish_away(void)
{
    struct lane_wish wish;
    assert_int_equal(lane_wish(moving.from.lane, RIG_JOB, moved, 1, rig_now(), &wish), 0);
    return wish;
}

static int may_release(const struct lane_wish *wish, uint64_t now_ns)
{
    return lane_may_release(moving.from.lane, RIG_JOB, moved, 1, wish, now_ns);
}

static void a_wanted_release_waits_until_a_round_has_ended(void **state)
{
    moving_start(2, SHORT, (struct lane_terms){0});
    do_round(&moving.from, 1, 7);
    do_round(&moving.from, 2, 8);
    struct lane_wish wish = wish_away();
    uint64_t early_ns = wish.until_ns - 1;
    assert_int_equal(may_release(&wish, early_ns), 0);
    assert_int_equal(moving.from.rests, 0);
    do_round(&moving.from, 3, 9); /* the piece is served as before */
    assert_int_equal(moving.from.rests, 1);
    assert_int_equal(may_release(&wish, early_ns), 1);
    push(&moving.from, 0, 4, 1);
    rig_settle(&moving.from);
    assert_int_equal(may_release(&wish, early_ns), 0); /* a rank uses the piece again */
    assert_int_equal(lane_release(moving.from.lane, RIG_JOB, moved, 1), 0);
    lane_thaw(moving.from.lane, RIG_JOB, moved, 1);
    push(&moving.from, 1, 4, 2);
    expect_commit(&moving.from, 0, 4);
    assert_int_equal(moving.from.rests, 1); /* the release was withdrawn */
}

static void a_wanted_release_waits_for_at_most_the_time_of_two_rounds(void **state)
{
    moving_start(2, SHORT, (struct lane_terms){0});
    do_round(&moving.from, 1, 7);
    struct lane_wish wish = wish_away();
    assert_int_equal(may_release(&wish, rig_now()), 1); /* the time of the next round is unknown */
    do_round(&moving.from, 2, 8);
    wish = wish_away();
    assert_int_equal(may_release(&wish, wish.until_ns - 1), 0);
    assert_int_equal(may_release(&wish, wish.until_ns), 1);
    assert_true(wish.until_ns < rig_now() + 2 * NS_PER_S);
}

static void a_thaw_withdraws_a_wanted_release(void **state)
{
    moving_start(2, SHORT, (struct lane_terms){0});
    do_round(&moving.from, 1, 7);
    struct lane_wish wish = wish_away();
    lane_thaw(moving.from.lane, RIG_JOB, moved, 1);
    assert_int_equal(may_release(&wish, UINT64_MAX), -ECANCELED);
    do_round(&moving.from, 2, 8);
    assert_int_equal(moving.from.rests, 0);
}

static void note_round(struct piece *p, uint64_t begun_ns)
{
    p->round++;
    p->gap_ns = 100;
    p->begun_ns = begun_ns;
}

/* If one tensor was broadcast more often, the numbers of rounds differ permanently. Therefore only
 * the times of rounds show the end of an iteration. */
static void the_end_of_an_iteration_is_seen_by_when_rounds_began(void **state)
{
    const uint32_t both[] = {MOVED, MOVED + 1};
    struct lane_wish wish;
    moving_start(1, SHORT, (struct lane_terms){0});
    moving.spec.id = both[1];
    rig_place_piece(&moving.from, 1, moving.spec, false);
    struct lane *lane = moving.from.lane;
    struct piece *first = piece_find(job_find(lane, RIG_JOB), both[0]),
                 *second = piece_find(job_find(lane, RIG_JOB), both[1]);
    note_round(first, 980);
    note_round(second, 990);
    for (uint64_t begun_ns = 1000; begun_ns < 1003; begun_ns++)
        note_round(second, begun_ns);
    note_round(first, 1080); /* this round starts in the middle of an iteration */
    assert_int_equal(lane_wish(lane, RIG_JOB, both, 2, 1081, &wish), 0);
    assert_int_equal(lane_may_release(lane, RIG_JOB, both, 2, &wish, 1082), 0);
    note_round(second, 1090);
    assert_int_equal(lane_may_release(lane, RIG_JOB, both, 2, &wish, 1091), 1);
    assert_int_equal(lane_wish(lane, RIG_JOB, both, 2, 1092, &wish), 0);
    assert_int_equal(lane_may_release(lane, RIG_JOB, both, 2, &wish, 1093), 0);
    note_round(first, 1180);
    assert_int_equal(lane_may_release(lane, RIG_JOB, both, 2, &wish, 1181), 0);
    note_round(second, 1190);
    assert_int_equal(lane_may_release(lane, RIG_JOB, both, 2, &wish, 1191), 1);
}

/* ---- rounds at the target ---- */

static void a_moved_piece_goes_on_with_the_next_round(void **state)
{
    moving_start(3, SHORT, (struct lane_terms){0});
    do_round(&moving.from, 1, 7);
    moving_move(1);
    stand(&moving.to, 0, 1, RECORD_IDLE);
    do_round(&moving.to, 2, 8);
    do_round(&moving.to, 3, 9);
    assert_int_equal(moving.to.workers[0].commits_count, 2);
}

/* The rank need not wait for other ranks, because the lane knows the commits. */
static void a_rank_that_missed_the_last_commit_gets_it_at_once(void **state)
{
    moving_start(3, SHORT, (struct lane_terms){0});
    do_round(&moving.from, 1, 7);
    moving_move(1);
    stand(&moving.to, 1, 1, RECORD_ANNOUNCE);
    expect_commit(&moving.to, 1, 1);
    stand(&moving.to, 2, 1, RECORD_HOLDS);
    expect_commit(&moving.to, 2, 1);
    assert_int_equal(moving.to.workers[1].words_count + moving.to.workers[2].words_count, 0);
    do_round(&moving.to, 2, 8);
}

static void a_rank_with_a_result_continues_with_its_announcement(void **state)
{
    moving_start(2, SHORT, (struct lane_terms){0});
    do_round(&moving.from, 1, 7);
    moving_move(1);
    stand(&moving.to, 0, 1, RECORD_KEEPS);
    push(&moving.to, 0, 2, 1);
    stand(&moving.to, 1, 1, RECORD_ANNOUNCE);
    expect_commit(&moving.to, 1, 1);
    push(&moving.to, 1, 2, 2);
    expect_commit(&moving.to, 0, 2);
    expect(&moving.to, 1, 3);
    assert_int_equal(moving.to.workers[0].commits_count, 1);
}

/* Rounds 1 and 2 are committed, but the rank has received neither commit. */
static void a_rank_with_the_result_of_the_round_before_learns_of_the_last_round(void **state)
{
    moving_start(2, SHORT, (struct lane_terms){0});
    do_round(&moving.from, 1, 7);
    do_round(&moving.from, 2, 8);
    moving_move(2);
    stand(&moving.to, 0, 1, RECORD_KEEPS);
    stand(&moving.to, 0, 2, RECORD_ANNOUNCE);
    expect_commit(&moving.to, 0, 2);
    do_round(&moving.to, 3, 9);
}

/* The former owner released the piece after it had sent words of the open round (A69). */
static void a_result_of_the_open_round_may_be_held_and_is_made_again(void **state)
{
    moving_start(2, SHORT, (struct lane_terms){0});
    do_round(&moving.from, 1, 7);
    moving_move(1);
    stand(&moving.to, 0, 2, RECORD_HOLDS);
    push(&moving.to, 1, 2, 5);
    expect_commit(&moving.to, 0, 2);
    expect_commit(&moving.to, 1, 2);
    expect(&moving.to, 1, 5);
    do_round(&moving.to, 3, 9);
}

static void a_piece_moved_before_its_first_round_awaits_standings_of_workers(void **state)
{
    moving_start(2, SHORT, (struct lane_terms){0});
    push(&moving.from, 0, 1, 4);
    rig_settle(&moving.from);
    moving_move(0);
    do_round(&moving.to, 1, 9);
}

static void an_impossible_standing_is_refused_and_the_piece_continues(void **state)
{
    static const struct {
        uint64_t round;
        uint8_t standing;
    } lies[] = {{1, RECORD_IDLE},  {3, RECORD_IDLE},     {1, RECORD_HOLDS},   {4, RECORD_HOLDS},
                {4, RECORD_KEEPS}, {1, RECORD_ANNOUNCE}, {5, RECORD_ANNOUNCE}};
    moving_start(2, SHORT, (struct lane_terms){0});
    do_round(&moving.from, 1, 7);
    do_round(&moving.from, 2, 8);
    moving_move(2);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        stand(&moving.to, 1, lies[i].round, lies[i].standing);
        expect_error(&moving.to, 1, -EPROTO);
    }
    do_round(&moving.to, 3, 9);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, moving_clear, moving_stop)
static const struct CMUnitTest cases[] = {
    CASE(a_round_that_has_begun_is_finished_and_no_other_begins),
    CASE(announcements_before_the_end_of_the_round_wait_too),
    CASE(a_thaw_serves_waiting_announcements),
    CASE(a_frozen_piece_keeps_announcements_and_answers_queries),
    CASE(a_rank_with_a_result_is_told_the_round_of_this_result),
    CASE(a_wanted_release_waits_until_a_round_has_ended),
    CASE(a_wanted_release_waits_for_at_most_the_time_of_two_rounds),
    CASE(a_thaw_withdraws_a_wanted_release),
    CASE(the_end_of_an_iteration_is_seen_by_when_rounds_began),
    CASE(a_moved_piece_goes_on_with_the_next_round),
    CASE(a_rank_that_missed_the_last_commit_gets_it_at_once),
    CASE(a_rank_with_a_result_continues_with_its_announcement),
    CASE(a_rank_with_the_result_of_the_round_before_learns_of_the_last_round),
    CASE(a_result_of_the_open_round_may_be_held_and_is_made_again),
    CASE(a_piece_moved_before_its_first_round_awaits_standings_of_workers),
    CASE(an_impossible_standing_is_refused_and_the_piece_continues),
};

int main(int argc, char **argv)
{
    moving.kind = argc > 1 ? argv[1] : "shm";
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests_name(moving.kind, cases, NULL, NULL);
}
