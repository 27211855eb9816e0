/* Tests answers to late ranks of a tensor whose rounds need the first two of four ranks (A16).
 * Ranks 0 and 2 take part in all rounds, and ranks 1 and 3 are late. The test does not poll a
 * stopped rank, so over a network no write to this rank completes. Over shared memory each write is
 * complete at once. */
#include "svc/base/clock.h"
#include "svc/lane/job/table.h"
#include "svc/lane/move/moved_state.h"
#include "svc/lane/move/regroup.h"
#include "svc/lane/move/release.h"
#include "svc/lane/worker/serving.h"
#include "svc/reduce/reduce.h"
#include "test/lib/kept_log.h"
#include "test/unit/lane/lane_rig.h"
#include "test/unit/skip.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ELEMENTS (100000 / TRANSFER_SHORTER) /* two chunks */
#define PIECE 2
#define RANKS 4
#define AGAIN RANKS /* worker of the rig for the second connection of rank 1 */
/* time after which an answer without progress may be given up */
#define TOO_LONG_NS (101 * NS_PER_MS)

static const struct lane_terms first_two = {.quorum = QUORUM_FIRST, .bound = 2};
static const char *kind;
static struct rig rig;
static int rounds; /* number of closed rounds */

static void start_with(struct lane_terms terms, bool recovering)
{
    rounds = 0;
    rig_start(&rig, kind);
    rig_place_piece(&rig, RANKS,
                    (struct lane_piece){.id = PIECE, .elements = ELEMENTS, .terms = terms},
                    recovering);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        rig_connect(&rig, rank, RIG_JOB, rank);
    rig.clock_ns = clock_now_ns();
}

static int start(void **state)
{
    start_with(first_two, false);
    return 0;
}

static int start_recovering(void **state)
{
    start_with(first_two, true);
    return 0;
}

static int start_of_three(void **state)
{
    start_with((struct lane_terms){.quorum = QUORUM_FIRST, .bound = 3}, false);
    return 0;
}

static int stop(void **state)
{
    rig_stop(&rig);
    return 0;
}

static bool is_mapped(void) { return strcmp(kind, "shm") == 0; }

static const struct serving *answer_to(uint32_t rank)
{
    return &job_find(rig.lane, RIG_JOB)->servings->of[rank];
}

static void say(uint32_t rank, uint64_t round, uint8_t standing)
{
    rig_say(&rig, rank,
            (struct say){.piece = PIECE,
                         .word = (uint32_t)round,
                         .round = round,
                         .elements = ELEMENTS,
                         .operation = RECORD_MEAN,
                         .standing = standing});
}

static void push(uint32_t rank, uint64_t round, float value)
{
    for (uint64_t e = 0; e < ELEMENTS; e++)
        rig_input(&rig, rank, 0)[e] = value;
    say(rank, round, RECORD_ANNOUNCE);
}

static void expect(uint32_t rank, uint64_t round)
{
    for (uint64_t e = 0; e < ELEMENTS; e++) {
        float is = rig_landing(&rig, rank, 0)[e];
        if (is != (float)round)
            fail_msg("rank %u element %llu: result of round %g, not %llu", rank,
                     (unsigned long long)e, is, (unsigned long long)round);
    }
}

/* Runs the next round, whose mean is the number of the round. */
static void make_round(void)
{
    rounds++;
    push(0, (uint64_t)rounds, (float)rounds - 1);
    push(2, (uint64_t)rounds, (float)rounds + 1);
    rig_until(&rig, rig.workers[0].commits_count == rounds);
    rig_until(&rig, rig.workers[2].commits_count == rounds);
    expect(0, (uint64_t)rounds);
    expect(2, (uint64_t)rounds);
}

/* The rank announces round 1, and is stopped while its answer is in progress. */
static void stop_late(uint32_t rank)
{
    push(rank, 1, 1000);
    rig.workers[rank].is_stopped = true;
    rig_settle(&rig);
}

/* The rank continues, and receives the result of `round` as answer to round 1, without a word. */
static void expect_closed(uint32_t rank, uint64_t round)
{
    struct rig_worker *w = &rig.workers[rank];
    w->is_stopped = false;
    rig_until(&rig, w->closed_count == 1);
    assert_int_equal(w->closed[0].word, 1);
    assert_int_equal(w->closed[0].round, round);
    assert_int_equal(w->words_count, 0);
    assert_int_equal(w->errors_count, 0);
    expect(rank, round);
}

static void a_stopped_late_rank_delays_no_round(void **state)
{
    make_round();
    stop_late(1);
    while (rounds < 6)
        make_round();
    expect_closed(1, 1);
    push(1, 2, 1000); /* the rank continues with the next round, and is late again */
    rig_until(&rig, rig.workers[1].closed_count == 2);
    assert_int_equal(rig.workers[1].closed[1].round, 6);
    expect(1, 6);
}

/* Returns whether the last chunk of the answer is posted. If not, stops or continues the rank,
 * which receives chunk after chunk. */
static bool is_sent(uint32_t rank)
{
    const struct serving *s = answer_to(rank);
    struct rig_worker *w = &rig.workers[rank];
    bool is_sent = (s->is_posted && s->is_last) || w->closed_count > 0;
    w->is_stopped = is_sent || !w->is_stopped;
    return is_sent;
}

static void an_answer_whose_last_chunk_is_posted_is_kept(void **state)
{
    make_round();
    push(1, 1, 1000);
    rig_until(&rig, is_sent(1));
    make_round();
    stop_late(3);
    while (rounds < 6) {
        rig.clock_ns += TOO_LONG_NS;
        make_round();
        assert_true(is_mapped() || !lane_is_quiet(rig.lane));
    }
    expect_closed(1, 1);
    rig.workers[3].is_stopped = false;
    rig_until(&rig, rig.workers[3].closed_count == 1);
    expect(3, rig.workers[3].closed[0].round);
}

/* Stops both late ranks in the middle of an answer: rank 1 receives the result of round 1, rank 3
 * the result of round 2. */
static void stop_both(void)
{
    make_round();
    stop_late(1);
    make_round();
    stop_late(3);
    if (is_mapped())
        return;
    assert_int_equal(answer_to(1)->round, 1);
    assert_int_equal(answer_to(3)->round, 2);
    assert_true(answer_to(1)->is_posted && !answer_to(1)->is_last);
    assert_true(answer_to(3)->is_posted && !answer_to(3)->is_last);
}

static void an_answer_without_progress_begins_again_when_a_later_one_needs_its_place(void **state)
{
    stop_both();
    rig.clock_ns += TOO_LONG_NS;
    make_round();
    expect_closed(1, is_mapped() ? 1 : 3);
    expect_closed(3, 2);
}

static void a_later_answer_begins_again_while_the_first_one_makes_progress(void **state)
{
    stop_both();
    make_round();
    expect_closed(1, 1);
    expect_closed(3, is_mapped() ? 2 : 3);
}

static void a_late_rank_that_connects_again_gets_the_newest_result(void **state)
{
    if (is_mapped())
        skip_because("over this transport a rank has one connection");
    kept_log_begin();
    make_round();
    stop_late(1);
    make_round();
    rig_connect(&rig, AGAIN, RIG_JOB, 1);
    kept_log_expect(": a new connection replaces the one from ");
    push(AGAIN, 1, 1000);
    rig.workers[1].is_stopped = false;
    expect_closed(AGAIN, 2);
    rig_until(&rig, rig.workers[1].is_closed);
    assert_int_equal(rig.workers[1].words_count, 0);
    make_round();
}

/* Rank 0 has the result of round 2, which the new owner copies to rank 2. The other ranks take no
 * part in the copy. */
static void a_late_rank_that_connects_again_ends_no_copy_of_a_result(void **state)
{
    if (is_mapped())
        skip_because("over this transport a rank has one connection");
    for (uint64_t e = 0; e < ELEMENTS; e++)
        rig_landing(&rig, 0, 0)[e] = 2;
    say(0, 2, RECORD_HOLDS);
    push(1, 1, 1000);
    push(3, 1, 1000);
    rig_settle(&rig);
    push(2, 2, 1000);
    rig.workers[2].is_stopped = true;
    rig_until(&rig, piece_find(job_find(rig.lane, RIG_JOB), PIECE)->is_copy);
    rig_connect(&rig, AGAIN, RIG_JOB, 1);
    push(AGAIN, 1, 1000);
    rig_settle(&rig);
    rig.workers[2].is_stopped = rig.workers[1].is_stopped = false;
    rig_until(&rig, rig.workers[2].commits_count == 1);
    assert_int_equal(rig.workers[2].errors_count, 0);
    expect(2, 2);
    expect_closed(3, 2);
    expect_closed(AGAIN, 2);
}

static void leave(uint32_t rank)
{
    struct record_leave record = {.kind = RECORD_LEAVE};
    assert_int_equal(fabric_send(rig.workers[rank].conn, &record, sizeof record, NULL, 0), 0);
}

/* The round needs three ranks. Two of them receive its result and leave. */
static void a_rank_that_announces_a_round_in_progress_is_late_after_others_have_left(void **state)
{
    rig.workers[2].is_stopped = true;
    push(0, 1, 1);
    push(3, 1, 1);
    for (uint64_t e = 0; e < ELEMENTS; e++)
        rig_input(&rig, 2, 0)[e] = 1;
    say(2, 1, RECORD_ANNOUNCE);
    rig_settle(&rig);
    leave(0);
    leave(3);
    rig_settle(&rig);
    push(1, 1, 1000);
    rig_settle(&rig);
    rig.workers[2].is_stopped = false;
    expect_closed(1, 1);
    assert_int_equal(rig.workers[2].errors_count, 0);
    expect(2, 1);
}

static void a_moved_piece_waits_for_the_answer_on_its_way(void **state)
{
    const uint32_t piece = PIECE;
    make_round();
    stop_late(1);
    make_round();
    assert_int_equal(lane_release(rig.lane, RIG_JOB, &piece, 1), 0);
    rig_settle(&rig);
    assert_int_equal(lane_rested(rig.lane, RIG_JOB, &piece, 1), is_mapped());
    rig.workers[1].is_stopped = false;
    rig_until(&rig, lane_rested(rig.lane, RIG_JOB, &piece, 1) == 1);
    lane_thaw(rig.lane, RIG_JOB, &piece, 1);
    expect_closed(1, is_mapped() ? 1 : 2);
}

/* Makes round 2 while rank 1 receives the result of round 1, and freezes the piece. Over a network
 * the piece then stores its newest result in its second area. */
static void freeze_second(void)
{
    const uint32_t piece = PIECE;
    make_round();
    stop_late(1);
    make_round();
    expect_closed(1, 1);
    assert_int_equal(lane_release(rig.lane, RIG_JOB, &piece, 1), 0);
    rig_until(&rig, lane_rested(rig.lane, RIG_JOB, &piece, 1) == 1);
}

static void the_newest_result_moves_from_either_area(void **state)
{
    float last = 0;
    struct lane_standing standing;
    freeze_second();
    assert_int_equal(lane_standing(rig.lane, RIG_JOB, PIECE, &standing), 0);
    assert_int_equal(standing.round, 2);
    assert_int_equal(lane_state_read(rig.lane, RIG_JOB, PIECE, standing.state_bytes - sizeof last,
                                     &last, sizeof last),
                     sizeof last);
    assert_true(last == 2);
}

static void the_newest_result_stays_when_the_ranks_change(void **state)
{
    struct lane_piece spec = {.id = PIECE, .dtype = REDUCE_F32, .elements = ELEMENTS};
    spec.tensor = "w";
    spec.terms = first_two;
    lane_set_elastic(rig.lane, RIG_JOB);
    freeze_second();
    assert_int_equal(lane_regroup(rig.lane, RIG_JOB, 2, &spec, 1), 0);
    for (uint32_t rank = 0; rank < RANKS - 1; rank++)
        rig_say(&rig, rank,
                (struct say){.piece = PIECE,
                             .word = 9,
                             .round = rank == 1 ? 1 : 2,
                             .operation = RECORD_MEAN,
                             .standing = RECORD_IDLE,
                             .epoch = 2,
                             .has_no_input = true,
                             .has_no_output = true});
    rig_say(&rig, 3,
            (struct say){.piece = PIECE,
                         .word = 1,
                         .round = 1,
                         .elements = ELEMENTS,
                         .operation = RECORD_MEAN,
                         .epoch = 2});
    expect_closed(3, 2);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, start, stop)
static const struct CMUnitTest cases[] = {
    CASE(a_stopped_late_rank_delays_no_round),
    CASE(an_answer_whose_last_chunk_is_posted_is_kept),
    CASE(an_answer_without_progress_begins_again_when_a_later_one_needs_its_place),
    CASE(a_later_answer_begins_again_while_the_first_one_makes_progress),
    CASE(a_late_rank_that_connects_again_gets_the_newest_result),
    cmocka_unit_test_setup_teardown(a_late_rank_that_connects_again_ends_no_copy_of_a_result,
                                    start_recovering, stop),
    cmocka_unit_test_setup_teardown(
        a_rank_that_announces_a_round_in_progress_is_late_after_others_have_left, start_of_three,
        stop),
    CASE(a_moved_piece_waits_for_the_answer_on_its_way),
    CASE(the_newest_result_moves_from_either_area),
    CASE(the_newest_result_stays_when_the_ranks_change),
};

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "shm";
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests_name(kind, cases, NULL, NULL);
}
