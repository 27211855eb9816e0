/* Tests which announcements form a round (svc/wire/README.md, W12 and W13), and compares all fields
 * of the records in both directions. Values are small integers, so that sums are exact. */
#include "svc/lane/job/table.h"
#include "svc/reduce/reduce.h"
#include "test/unit/lane/lane_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define ELEMENTS (100000 / TRANSFER_SHORTER) /* two chunks */
#define BYTES (ELEMENTS * sizeof(float))
#define DATA 2 /* number of the piece of the data tensor; piece 1 belongs to the leader */

static const char *kind;
static struct rig rig;

static int stop(void **state)
{
    rig_stop(&rig);
    return 0;
}

static void start(uint32_t ranks, struct lane_terms terms, bool recovering)
{
    rig_start(&rig, kind);
    rig_place_piece(&rig, ranks,
                    (struct lane_piece){.id = DATA, .elements = ELEMENTS, .terms = terms},
                    recovering);
    for (uint32_t rank = 0; rank < ranks; rank++)
        rig_connect(&rig, rank, RIG_JOB, rank);
}

static void push_as(uint32_t rank, uint64_t round, float value, uint8_t operation, uint8_t standing)
{
    for (uint64_t e = 0; e < ELEMENTS; e++)
        rig_input(&rig, rank, 0)[e] = value;
    rig_say(&rig, rank,
            (struct say){.piece = DATA,
                         .word = (uint32_t)round,
                         .round = round,
                         .elements = ELEMENTS,
                         .operation = operation,
                         .standing = standing});
}

static void push(uint32_t rank, uint64_t round, float value)
{
    push_as(rank, round, value, RECORD_MEAN, RECORD_ANNOUNCE);
}

static void expect(uint32_t rank, float value)
{
    for (uint64_t e = 0; e < ELEMENTS; e++) {
        if (rig_landing(&rig, rank, 0)[e] != value)
            fail_msg("rank %u element %llu: %.9g, not %.9g", rank, (unsigned long long)e,
                     rig_landing(&rig, rank, 0)[e], value);
    }
}

static void expect_commit(uint32_t rank, int count, uint64_t round, float value)
{
    rig_until(&rig, rig.workers[rank].commits_count == count);
    assert_int_equal(rig.workers[rank].commits[count - 1], round);
    assert_int_equal(rig.workers[rank].errors_count, 0);
    expect(rank, value);
}

/* Checks the lane's answer to the worker's announcement with `word`: the result of `round`, and
 * CLOSED without a completion word. */
static void expect_closed(uint32_t rank, int count, uint32_t word, uint64_t round, float value)
{
    struct rig_worker *w = &rig.workers[rank];
    int words = w->words_count;
    rig_until(&rig, w->closed_count == count);
    assert_int_equal(w->closed[count - 1].word, word);
    assert_int_equal(w->closed[count - 1].round, round);
    assert_int_equal(w->words_count, words);
    assert_int_equal(w->errors_count, 0);
    expect(rank, value);
}

static void leave(uint32_t rank)
{
    struct record_leave record = {.kind = RECORD_LEAVE};
    assert_int_equal(fabric_send(rig.workers[rank].conn, &record, sizeof record, NULL, 0), 0);
    rig_settle(&rig);
}

/* --- the first k --- */

static const struct lane_terms first_two = {.quorum = QUORUM_FIRST, .bound = 2};

static void the_first_two_of_three_make_the_mean(void **state)
{
    start(3, first_two, false);
    push(2, 1, 6);
    rig_settle(&rig);
    assert_int_equal(rig.workers[2].words_count, 0);
    push(0, 1, 2);
    expect_commit(2, 1, 1, 4);
    expect_commit(0, 1, 1, 4);
    assert_int_equal(rig.workers[1].words_count, 0);
}

static void a_late_rank_gets_the_result_and_no_lane_reads_its_gradient(void **state)
{
    start(3, first_two, false);
    push(0, 1, 2);
    push(2, 1, 6);
    expect_commit(0, 1, 1, 4);
    push(1, 1, 1000);
    expect_closed(1, 1, 1, 1, 4);
    assert_int_equal(rig.workers[1].commits_count, 0);
    assert_int_equal(rig_use(&rig).pushed_bytes, 2 * BYTES);
    assert_int_equal(rig_use(&rig).rounds, 1);
}

/* Announces a round of a piece without elements. */
static void end(uint32_t rank, uint64_t round)
{
    rig_say(&rig, rank,
            (struct say){.piece = DATA,
                         .word = (uint32_t)round,
                         .round = round,
                         .operation = RECORD_BARRIER,
                         .has_no_input = true,
                         .has_no_output = true});
}

static bool has_commit(uint32_t rank, uint64_t round)
{
    const struct rig_worker *w = &rig.workers[rank];
    return w->commits_count > 0 && w->commits[w->commits_count - 1] == round;
}

/* A stopped rank receives no word. Over a network, a round that waits for such a word would not
 * end. */
static void a_stopped_late_rank_delays_no_round_of_a_tensor_without_elements(void **state)
{
    struct rig_worker *late = &rig.workers[1];
    rig_start(&rig, kind);
    rig_place_piece(&rig, 3, (struct lane_piece){.id = DATA, .terms = first_two}, false);
    for (uint32_t rank = 0; rank < 3; rank++)
        rig_connect(&rig, rank, RIG_JOB, rank);
    end(0, 1);
    end(2, 1);
    rig_until(&rig, has_commit(0, 1) && has_commit(2, 1));
    end(1, 1);
    late->is_stopped = true;
    const struct piece *p = piece_find(job_find(rig.lane, RIG_JOB), DATA);
    rig_until(&rig, p->ranks[1].clock == 1);
    for (uint64_t round = 2; round <= 5; round++) {
        end(0, round);
        end(2, round);
        rig_until(&rig, has_commit(0, round) && has_commit(2, round));
    }
    late->is_stopped = false;
    rig_until(&rig, late->closed_count == 1);
    assert_int_equal(late->words_count, 0);
    assert_int_equal(late->errors_count, 0);
    end(1, late->closed[0].round + 1); /* the rank continues, and is late again */
    rig_until(&rig, late->closed_count == 2);
    assert_int_equal(late->closed[1].round, 5);
}

static void a_rank_many_rounds_behind_continues_after_the_newest_round(void **state)
{
    start(3, first_two, false);
    for (uint64_t round = 1; round <= 5; round++) {
        push(0, round, (float)round);
        push(2, round, (float)round);
        expect_commit(0, (int)round, round, (float)round);
        expect_commit(2, (int)round, round, (float)round);
    }
    push(1, 1, 1000);
    expect_closed(1, 1, 1, 5, 5);
    push(1, 6, 10);
    push(0, 6, 20);
    expect_commit(1, 1, 6, 15);
    push(2, 6, 1000);
    expect_closed(2, 1, 6, 6, 15);
}

static void a_late_announcement_may_be_repeated_and_is_answered_once(void **state)
{
    start(3, first_two, false);
    push(0, 1, 2);
    push(2, 1, 6);
    expect_commit(0, 1, 1, 4);
    for (int i = 0; i < 4; i++)
        push(1, 1, 1000);
    expect_closed(1, 1, 1, 1, 4);
    rig_settle(&rig);
    assert_int_equal(rig.workers[1].closed_count, 1);
}

static void a_round_never_goes_back_for_a_rank(void **state)
{
    start(3, first_two, false);
    push(0, 1, 2);
    push(2, 1, 6);
    expect_commit(0, 1, 1, 4);
    rig_say(
        &rig, 0,
        (struct say){
            .piece = DATA, .word = 77, .round = 1, .elements = ELEMENTS, .operation = RECORD_MEAN});
    rig_until(&rig, rig.workers[0].errors_count == 1);
    assert_int_equal(rig.workers[0].error.code, -EPROTO);
}

static void the_first_k_continue_without_one_leaver_but_not_without_two(void **state)
{
    start(3, first_two, false);
    leave(1);
    push(0, 1, 2);
    push(2, 1, 6);
    expect_commit(0, 1, 1, 4);
    push(0, 2, 2);
    leave(2);
    rig_until(&rig, rig.workers[0].errors_count == 1);
    assert_int_equal(rig.workers[0].error.code, -EPIPE);
}

static void a_gather_of_the_first_is_refused(void **state)
{
    start(3, first_two, false);
    rig_say(&rig, 0,
            (struct say){.piece = DATA,
                         .round = 1,
                         .elements = ELEMENTS,
                         .operation = RECORD_GATHER,
                         .output_blocks = 3});
    rig_until(&rig, rig.workers[0].errors_count == 1);
    assert_int_equal(rig.workers[0].error.code, -EOPNOTSUPP);
}

/* A barrier has no result that late ranks could receive. */
static void a_barrier_of_the_first_needs_a_tensor_without_elements(void **state)
{
    const struct say barrier = {.piece = DATA,
                                .word = 1,
                                .round = 1,
                                .elements = ELEMENTS,
                                .operation = RECORD_BARRIER,
                                .has_no_input = true};
    start(3, first_two, false);
    rig_say(&rig, 0, barrier);
    rig_say(&rig, 2, barrier);
    rig_until(&rig, rig.workers[0].errors_count == 1 && rig.workers[2].errors_count == 1);
    assert_int_equal(rig.workers[0].error.code, -EOPNOTSUPP);
    rig.workers[0].errors_count = 0;
    push(0, 1, 2); /* the piece still works */
    push(2, 1, 6);
    expect_commit(0, 1, 1, 4);
    push(1, 1, 1000);
    expect_closed(1, 1, 1, 1, 4);
}

/* The former owner died after round 1. Ranks 1 and 2 know that round 3 has ended. */
static void a_new_owner_tells_a_rank_with_a_result_the_round_of_this_result(void **state)
{
    start(3, first_two, true);
    push_as(0, 1, 1, RECORD_MEAN, RECORD_HOLDS);
    push(1, 4, 2);
    push(2, 4, 6);
    rig_until(&rig, rig.workers[0].closed_count == 1);
    assert_int_equal(rig.workers[0].closed[0].round, 1);
    expect_commit(1, 1, 4, 4);
    push(0, 2, 1000);
    expect_closed(0, 2, 2, 4, 4);
}

static void a_new_owner_copies_the_result_of_a_rank_and_answers_late_ranks_with_it(void **state)
{
    start(3, first_two, true);
    for (uint64_t e = 0; e < ELEMENTS; e++)
        rig_landing(&rig, 0, 0)[e] = 9;
    push_as(0, 5, 1, RECORD_MEAN, RECORD_HOLDS);
    push_as(2, 5, 1, RECORD_MEAN, RECORD_ANNOUNCE);
    rig_say(&rig, 1,
            (struct say){.piece = DATA,
                         .word = 1,
                         .round = 3,
                         .elements = ELEMENTS,
                         .operation = RECORD_MEAN}); /* the late rank */
    expect_commit(2, 1, 5, 9);
    expect_commit(0, 1, 5, 9);
    expect_closed(1, 1, 1, 5, 9);
}

/* When the lane died, rank 0 knew the end of round 7, and the other ranks were between two rounds.
 * Round 8 needs two ranks. */
static void late_ranks_that_no_result_can_reach_get_an_error(void **state)
{
    struct say idle = {.piece = DATA,
                       .round = 6,
                       .standing = RECORD_IDLE,
                       .has_no_input = true,
                       .has_no_output = true};
    start(3, first_two, true);
    rig_say(&rig, 1, idle);
    rig_say(&rig, 2, idle);
    idle.round = 7;
    rig_say(&rig, 0, idle);
    push(1, 7, 1000);
    push(0, 8, 2);
    rig_settle(&rig);
    assert_int_equal(rig.workers[1].errors_count + rig.workers[0].errors_count, 0);
    push(2, 7, 1000);
    for (uint32_t rank = 0; rank < 3; rank++) {
        rig_until(&rig, rig.workers[rank].errors_count == 1);
        assert_int_equal(rig.workers[rank].error.code, -EOWNERDEAD);
    }
}

/* All ranks leave after round 7, but rank 1 still waits for a result that died with its lane. */
static void a_late_rank_gets_an_error_when_ranks_leave_before_its_result(void **state)
{
    const struct record_leave leave = {.kind = RECORD_LEAVE};
    struct say idle = {.piece = DATA,
                       .round = 7,
                       .standing = RECORD_IDLE,
                       .has_no_input = true,
                       .has_no_output = true};
    start(3, first_two, true);
    rig_say(&rig, 0, idle);
    rig_say(&rig, 2, idle);
    push(1, 7, 1000);
    rig_settle(&rig);
    assert_int_equal(rig.workers[1].errors_count, 0);
    assert_int_equal(fabric_send(rig.workers[2].conn, &leave, sizeof leave, NULL, 0), 0);
    rig_until(&rig, rig.workers[1].errors_count == 1);
    assert_int_equal(rig.workers[1].error.code, -EOWNERDEAD);
}

static void late_ranks_wait_for_the_first_result_of_a_new_owner(void **state)
{
    start(3, first_two, true);
    struct say idle = {.piece = DATA,
                       .round = 4,
                       .standing = RECORD_IDLE,
                       .has_no_input = true,
                       .has_no_output = true};
    rig_say(&rig, 0, idle);
    rig_say(&rig, 2, idle);
    push(1, 2, 1000);
    rig_settle(&rig);
    assert_int_equal(rig.workers[1].closed_count, 0);
    push(0, 5, 2);
    push(2, 5, 4);
    expect_commit(0, 1, 5, 3);
    expect_closed(1, 1, 2, 5, 3);
}

/* --- a set that the leader chose --- */

static void start_led(void)
{
    start(3, (struct lane_terms){.quorum = QUORUM_CHOSEN}, false);
    rig_place_piece(&rig, 3,
                    (struct lane_piece){
                        .id = 1, .terms = {.quorum = QUORUM_FIRST, .bound = 2, .role = LEADS_SETS}},
                    false);
}

/* Announces all pieces of the round; the leader's announcement is the last. */
static void finish_iteration(uint32_t rank, uint64_t round)
{
    rig_say(&rig, rank,
            (struct say){.piece = 1,
                         .word = 100 + (uint32_t)round,
                         .round = round,
                         .operation = RECORD_BARRIER,
                         .has_no_input = true,
                         .has_no_output = true});
}

static void choose(uint32_t by, uint64_t round, uint64_t ranks)
{
    struct record_chosen chosen = {.kind = RECORD_CHOSEN, .round = round, .ranks = {ranks}};
    assert_int_equal(fabric_send(rig.workers[by].conn, &chosen, sizeof chosen, NULL, 0), 0);
}

static void the_leader_decides_which_gradients_make_the_round(void **state)
{
    start_led();
    /* Rank 1 is the first on this lane, but slow on other lanes. The leader therefore chooses
     * other ranks. */
    push(1, 1, 1000);
    push(0, 1, 2);
    push(2, 1, 6);
    rig_settle(&rig);
    assert_int_equal(rig.workers[0].words_count, 0);
    finish_iteration(0, 1);
    finish_iteration(2, 1);
    expect_commit(2, 2, 1, 4);
    expect_closed(1, 1, 1, 1, 4);
    for (uint32_t rank = 0; rank < 3; rank += 2) {
        assert_int_equal(rig.workers[rank].chosen_count, 1);
        assert_int_equal(rig.workers[rank].chosen.round, 1);
        assert_int_equal(rig.workers[rank].chosen.ranks[0], 1 << 0 | 1 << 2);
    }
    finish_iteration(1, 1);
    rig_until(&rig, rig.workers[1].closed_count == 2); /* decided by the leader */
    assert_int_equal(rig.workers[1].closed[1].word, 101);
    assert_int_equal(rig_use(&rig).pushed_bytes, 2 * BYTES);
}

static void a_lane_waits_for_the_set_that_workers_pass_on(void **state)
{
    start(3, (struct lane_terms){.quorum = QUORUM_CHOSEN}, false);
    choose(0, 1, 1 << 0 | 1 << 1);
    choose(1, 1, 1 << 0 | 1 << 1); /* both leaders send the same set */
    push(2, 1, 1000);
    push(1, 1, 6);
    rig_settle(&rig);
    assert_int_equal(rig.workers[1].words_count, 0);
    push(0, 1, 2);
    expect_commit(0, 1, 1, 4);
    expect_commit(1, 1, 1, 4);
    expect_closed(2, 1, 1, 1, 4);
}

static void a_rank_that_forwards_another_set_is_disconnected(void **state)
{
    start(3, (struct lane_terms){.quorum = QUORUM_CHOSEN}, false);
    choose(0, 1, 1 << 0 | 1 << 1);
    rig_settle(&rig);
    choose(1, 1, 1 << 1 | 1 << 2);
    rig_until(&rig, rig.workers[1].is_closed);
}

static void a_set_with_ranks_that_do_not_exist_is_cut_off(void **state)
{
    start(3, (struct lane_terms){.quorum = QUORUM_CHOSEN}, false);
    choose(0, 1, 1 << 0 | 1 << 3);
    rig_until(&rig, rig.workers[0].is_closed);
}

/* --- quorums any and stale --- */

static void add(uint32_t rank, uint64_t round, float value)
{
    push_as(rank, round, value, RECORD_SUM, RECORD_ANNOUNCE);
}

static void with_any_each_push_gets_the_sum_of_all_so_far(void **state)
{
    start(2, (struct lane_terms){.quorum = QUORUM_ANY}, false);
    add(0, 1, 1);
    expect_commit(0, 1, 1, 1);
    add(0, 2, 2);
    expect_commit(0, 2, 2, 3);
    add(1, 1, 10);
    expect_commit(1, 1, 1, 13);
    add(0, 3, 4);
    expect_commit(0, 3, 3, 17);
}

static void with_stale_one_no_rank_is_more_than_one_round_ahead(void **state)
{
    start(2, (struct lane_terms){.quorum = QUORUM_STALE, .bound = 1}, false);
    add(0, 1, 1);
    expect_commit(0, 1, 1, 1);
    add(0, 2, 2);
    expect_commit(0, 2, 2, 3);
    add(0, 3, 4); /* this round is two rounds ahead of rank 1, which has announced none */
    rig_settle(&rig);
    assert_int_equal(rig.workers[0].commits_count, 2);
    add(1, 1, 10);
    expect_commit(1, 1, 1, 13);
    expect_commit(0, 3, 3, 17);
}

static void no_rank_waits_for_a_rank_that_has_left(void **state)
{
    start(2, (struct lane_terms){.quorum = QUORUM_STALE}, false);
    add(0, 1, 1);
    expect_commit(0, 1, 1, 1);
    add(0, 2, 2);
    rig_settle(&rig);
    assert_int_equal(rig.workers[0].commits_count, 1);
    leave(1);
    expect_commit(0, 2, 2, 3);
}

static void a_running_mean_is_refused(void **state)
{
    start(2, (struct lane_terms){.quorum = QUORUM_ANY}, false);
    push(0, 1, 1);
    rig_until(&rig, rig.workers[0].errors_count == 1);
    assert_int_equal(rig.workers[0].error.code, -EOPNOTSUPP);
}

static void a_running_sum_that_is_lost_is_an_error_not_a_smaller_sum(void **state)
{
    start(2, (struct lane_terms){.quorum = QUORUM_ANY}, true);
    add(0, 4, 1);
    add(1, 2, 1);
    rig_until(&rig, rig.workers[0].errors_count == 1 && rig.workers[1].errors_count == 1);
    assert_true(rig_says(&rig.workers[0], -EOWNERDEAD,
                         "the running sum was lost with its lane; declare the tensor again"));
}

/* --- cost and counters --- */

static void the_kept_result_is_counted_to_the_job_and_given_back(void **state)
{
    start(2, first_two, false);
    assert_true(rig_use(&rig).heap_bytes >= BYTES);
    uint64_t before = rig_use(&rig).heap_bytes;
    uint32_t piece = DATA;
    lane_drop(rig.lane, RIG_JOB, &piece, 1);
    assert_true(rig_use(&rig).heap_bytes <= before - BYTES);
}

static void squares_of_inputs_and_result_are_summed_on_request(void **state)
{
    start(3, (struct lane_terms){.quorum = QUORUM_FIRST, .bound = 2, .measures = true}, false);
    push(0, 1, 2);
    push(1, 1, 4);
    expect_commit(0, 1, 1, 3);
    struct lane_squares squares = rig_use(&rig).squares;
    assert_int_equal(squares.round, 1);
    assert_int_equal(squares.inputs, 2);
    assert_int_equal(squares.pieces, 1);
    assert_true(squares.input_squares == ELEMENTS * 20.0);
    assert_true(squares.result_squares == ELEMENTS * 9.0);
    assert_int_equal(squares.losses, 2);
    assert_true(squares.loss_sum == 2 * 0.5);
}

static void bounds_that_can_never_be_met_are_refused(void **state)
{
    rig_start(&rig, kind);
    struct lane_piece piece = {.id = 1, .dtype = REDUCE_F32, .elements = 1, .tensor = "w"};
    piece.terms = (struct lane_terms){.quorum = QUORUM_FIRST, .bound = 4};
    assert_int_equal(lane_place(rig.lane, RIG_JOB, "job", 3, 1, false, &piece, 1), -EINVAL);
    piece.terms.bound = 0;
    assert_int_equal(lane_place(rig.lane, RIG_JOB, "job", 3, 1, false, &piece, 1), -EINVAL);
    static const uint64_t nobody[RECORD_MISSING_WORDS];
    piece.terms.quorum = QUORUM_ALL;
    piece.ranks = nobody;
    assert_int_equal(lane_place(rig.lane, RIG_JOB, "job", 3, 1, false, &piece, 1), -EINVAL);
}

#define CASE(name) cmocka_unit_test_teardown(name, stop)
static const struct CMUnitTest cases[] = {
    CASE(the_first_two_of_three_make_the_mean),
    CASE(a_late_rank_gets_the_result_and_no_lane_reads_its_gradient),
    CASE(a_stopped_late_rank_delays_no_round_of_a_tensor_without_elements),
    CASE(a_rank_many_rounds_behind_continues_after_the_newest_round),
    CASE(a_late_announcement_may_be_repeated_and_is_answered_once),
    CASE(a_round_never_goes_back_for_a_rank),
    CASE(the_first_k_continue_without_one_leaver_but_not_without_two),
    CASE(a_gather_of_the_first_is_refused),
    CASE(a_barrier_of_the_first_needs_a_tensor_without_elements),
    CASE(a_new_owner_tells_a_rank_with_a_result_the_round_of_this_result),
    CASE(a_new_owner_copies_the_result_of_a_rank_and_answers_late_ranks_with_it),
    CASE(late_ranks_that_no_result_can_reach_get_an_error),
    CASE(a_late_rank_gets_an_error_when_ranks_leave_before_its_result),
    CASE(late_ranks_wait_for_the_first_result_of_a_new_owner),
    CASE(the_leader_decides_which_gradients_make_the_round),
    CASE(a_lane_waits_for_the_set_that_workers_pass_on),
    CASE(a_rank_that_forwards_another_set_is_disconnected),
    CASE(a_set_with_ranks_that_do_not_exist_is_cut_off),
    CASE(with_any_each_push_gets_the_sum_of_all_so_far),
    CASE(with_stale_one_no_rank_is_more_than_one_round_ahead),
    CASE(no_rank_waits_for_a_rank_that_has_left),
    CASE(a_running_mean_is_refused),
    CASE(a_running_sum_that_is_lost_is_an_error_not_a_smaller_sum),
    CASE(the_kept_result_is_counted_to_the_job_and_given_back),
    CASE(squares_of_inputs_and_result_are_summed_on_request),
    CASE(bounds_that_can_never_be_met_are_refused),
};

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "shm";
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests_name(kind, cases, NULL, NULL);
}
