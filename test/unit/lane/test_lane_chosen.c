/* Tests rounds of the first k ranks, and rounds of ranks that a leading tensor chooses (A45, W12,
 * W13). Meanwhile the lane dies, or workers join and leave. Each round must end, or every rank must
 * receive the reason. */
#include "svc/lane/move/regroup.h"
#include "svc/lane/move/release.h"
#include "test/unit/lane/lane_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ELEMENTS 1000
#define RANKS 3
#define PIECE 1
#define OTHER_PIECE 2

static const char *kind;
static struct rig rig;
static uint64_t set[RECORD_MISSING_WORDS];
static struct lane_piece spec;
static uint32_t epoch;
static const uint32_t piece = PIECE;
static const struct lane_terms chosen_ones = {.quorum = QUORUM_CHOSEN};
static const struct lane_terms first_two = {.quorum = QUORUM_FIRST, .bound = 2};

static int stop(void **state)
{
    rig_stop(&rig);
    return 0;
}

static void start(struct lane_terms terms, bool recovering)
{
    set[0] = 7;
    epoch = 1;
    spec = (struct lane_piece){.id = PIECE,
                               .dtype = REDUCE_F32,
                               .elements = ELEMENTS,
                               .tensor = "w",
                               .ranks = set,
                               .terms = terms};
    rig_start(&rig, kind);
    rig_place_piece(&rig, RANKS, spec, recovering);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        rig_connect(&rig, rank, RIG_JOB, rank);
    rig.count = RANKS;
}

static void start_elastic(struct lane_terms terms)
{
    start(terms, false);
    lane_set_elastic(rig.lane, RIG_JOB);
}

static uint32_t word_of(uint64_t round) { return epoch * 1000 + (uint32_t)round; }

static void stand(uint32_t rank, uint64_t round, uint8_t standing)
{
    bool is_idle = standing == RECORD_IDLE;
    rig_say(&rig, rank,
            (struct say){.piece = PIECE,
                         .word = word_of(round),
                         .round = round,
                         .elements = is_idle ? 0 : ELEMENTS,
                         .operation = RECORD_MEAN,
                         .standing = standing,
                         .epoch = epoch,
                         .has_no_input = is_idle,
                         .has_no_output = is_idle});
}

static void push(uint32_t rank, uint64_t round, float value)
{
    for (uint64_t e = 0; e < ELEMENTS; e++)
        rig_input(&rig, rank, 0)[e] = value;
    stand(rank, round, RECORD_ANNOUNCE);
}

static void hold(uint32_t rank, uint64_t round, float value)
{
    for (uint64_t e = 0; e < ELEMENTS; e++)
        rig_landing(&rig, rank, 0)[e] = value;
    stand(rank, round, RECORD_HOLDS);
}

static void choose(uint32_t by, uint64_t round, uint64_t ranks)
{
    struct record_chosen chosen = {.kind = RECORD_CHOSEN, .round = round, .ranks = {ranks}};
    assert_int_equal(fabric_send(rig.workers[by].conn, &chosen, sizeof chosen, NULL, 0), 0);
}

static void expect_has(uint32_t rank, float value)
{
    assert_int_equal(rig.workers[rank].errors_count, 0);
    for (uint64_t e = 0; e < ELEMENTS; e++)
        assert_true(rig_landing(&rig, rank, 0)[e] == value);
}

static void expect_commit(uint32_t rank, uint64_t round)
{
    const struct rig_worker *w = &rig.workers[rank];
    rig_until(&rig, w->commits_count > 0 && w->commits[w->commits_count - 1] == word_of(round));
    assert_int_equal(w->errors_count, 0);
}

static void expect_made(uint32_t rank, uint64_t round, float value)
{
    expect_commit(rank, round);
    expect_has(rank, value);
}

/* Checks that the lane answers the rank's announcement of round `asked` with the result of
 * `round`. */
static void expect_late(uint32_t rank, uint64_t asked, uint64_t round, float value)
{
    const struct rig_worker *w = &rig.workers[rank];
    rig_until(&rig, w->closed_count > 0 && w->closed[w->closed_count - 1].word == word_of(asked));
    assert_int_equal(w->closed[w->closed_count - 1].round, round);
    expect_has(rank, value);
}

static void expect_loss(uint32_t rank)
{
    rig_until(&rig, rig.workers[rank].errors_count > 0);
    assert_int_equal(rig.workers[rank].error.code, -EOWNERDEAD);
}

/* Regroups for these ranks, like a coordinator. Disconnects the other ranks. */
static void regroup(uint64_t ranks)
{
    const uint64_t gone[RECORD_MISSING_WORDS] = {7 & ~ranks};
    assert_int_equal(lane_release(rig.lane, RIG_JOB, &piece, 1), 0);
    lane_let_go(rig.lane, RIG_JOB, gone);
    rig_until(&rig, lane_rested(rig.lane, RIG_JOB, &piece, 1) == 1);
    set[0] = ranks;
    assert_int_equal(lane_regroup(rig.lane, RIG_JOB, ++epoch, &spec, 1), 0);
}

/* --- loss of a lane whose pieces follow the leading tensor --- */

static void the_open_round_is_made_by_its_set_though_the_leader_is_further(void **state)
{
    start(chosen_ones, true);
    choose(0, 5, 1 << 0 | 1 << 1);
    choose(0, 6, 1 << 0 | 1 << 2);
    push(0, 5, 2);
    push(1, 5, 6);
    push(2, 5, 1000);
    expect_made(0, 5, 4);
    expect_made(1, 5, 4);
    expect_late(2, 5, 5, 4);
}

static void the_result_of_one_rank_is_copied_even_without_the_set(void **state)
{
    start(chosen_ones, true);
    hold(0, 5, 42);
    push(1, 5, 1);
    push(2, 5, 1);
    expect_has(0, 42);
    for (uint32_t rank = 1; rank < RANKS; rank++) {
        const struct rig_worker *w = &rig.workers[rank];
        rig_until(&rig, w->commits_count + w->closed_count == 1);
        expect_has(rank, 42);
    }
}

static void a_rank_of_the_last_round_has_its_result(void **state)
{
    start(chosen_ones, true);
    choose(1, 5, 1 << 0 | 1 << 1);
    stand(0, 5, RECORD_IDLE);
    push(1, 5, 1000); /* the word of round 5 was lost with the lane */
    push(2, 5, 1000);
    expect_commit(1, 5);
    choose(0, 6, 1 << 0 | 1 << 1);
    push(0, 6, 2);
    push(1, 6, 6);
    expect_made(0, 6, 4);
    expect_made(1, 6, 4);
    expect_late(2, 5, 6, 4);
}

static void a_rank_of_a_round_long_ago_continues_after_that_round(void **state)
{
    start(chosen_ones, true);
    choose(1, 4, 1 << 1 | 1 << 2);
    choose(1, 5, 1 << 0 | 1 << 2);
    stand(0, 5, RECORD_IDLE);
    stand(2, 5, RECORD_IDLE);
    push(1, 4, 1000);
    expect_commit(1, 4);
    push(1, 5, 1000);
    choose(0, 6, 1 << 0 | 1 << 2);
    push(0, 6, 2);
    push(2, 6, 6);
    expect_late(1, 5, 6, 4);
}

static void a_result_that_is_lost_and_needed_is_an_error_not_a_standstill(void **state)
{
    start(chosen_ones, true);
    choose(0, 5, 1 << 0 | 1 << 1);
    /* without the result of round 5, rank 2 cannot announce round 6 */
    choose(0, 6, 1 << 0 | 1 << 2);
    stand(0, 5, RECORD_IDLE);
    stand(1, 5, RECORD_IDLE);
    push(2, 5, 1);
    expect_loss(2);
    push(0, 6, 1);
    expect_loss(0);
}

static void without_a_known_set_no_rank_waits_for_ever(void **state)
{
    start(chosen_ones, true);
    stand(0, 5, RECORD_IDLE);
    push(1, 5, 1);
    push(2, 5, 1);
    expect_loss(1);
    expect_loss(2);
}

/* The set of round 6 arrives after the lane has found round 6 open. */
static void a_later_set_that_needs_a_rank_without_a_lost_result_is_an_error(void **state)
{
    start(chosen_ones, true);
    choose(0, 5, 1 << 0 | 1 << 1);
    stand(0, 5, RECORD_IDLE);
    stand(1, 5, RECORD_IDLE);
    push(2, 5, 1);
    rig_settle(&rig);
    assert_int_equal(rig.workers[2].errors_count, 0);
    choose(0, 6, 1 << 0 | 1 << 2);
    expect_loss(2);
    push(0, 6, 1);
    expect_loss(0);
}

static void a_rank_that_needs_a_lost_result_later_is_told_of_the_loss(void **state)
{
    start(chosen_ones, true);
    choose(0, 5, 1 << 0 | 1 << 1);
    choose(0, 6, 1 << 0 | 1 << 2);
    stand(0, 5, RECORD_IDLE);
    stand(1, 5, RECORD_IDLE);
    stand(2, 4, RECORD_IDLE); /* this rank computes its gradient of round 5 */
    rig_settle(&rig);
    push(2, 5, 1);
    expect_loss(2);
}

static void ranks_whose_result_left_with_another_rank_are_told_of_the_loss(void **state)
{
    const struct record_leave leave = {.kind = RECORD_LEAVE};
    start(chosen_ones, true);
    choose(0, 5, 1 << 0);
    stand(0, 5, RECORD_IDLE);
    push(1, 5, 1);
    stand(2, 4, RECORD_IDLE);
    rig_settle(&rig);
    push(2, 5, 1);
    rig_settle(&rig);
    assert_int_equal(rig.workers[1].errors_count + rig.workers[2].errors_count, 0);
    assert_int_equal(fabric_send(rig.workers[0].conn, &leave, sizeof leave, NULL, 0), 0);
    expect_loss(1);
    expect_loss(2);
}

/* --- a set is sent before the word of its round --- */

static void expect_set(uint32_t rank, uint64_t round, uint64_t ranks)
{
    const struct rig_worker *w = &rig.workers[rank];
    assert_int_equal(w->chosen_before_word, 1);
    assert_int_equal(w->chosen_count, 1);
    assert_int_equal(w->chosen.round, round);
    assert_int_equal(w->chosen.ranks[0], ranks);
}

static void a_rank_with_a_result_has_its_set(void **state)
{
    start(chosen_ones, false);
    choose(0, 1, 1 << 0 | 1 << 1);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        push(rank, 1, (float)(2 + rank));
    expect_made(0, 1, 2.5f);
    expect_made(1, 1, 2.5f);
    expect_late(2, 1, 1, 2.5f);
    assert_int_equal(rig.workers[0].chosen_count, 0); /* rank 0 has sent the set itself */
    expect_set(1, 1, 1 << 0 | 1 << 1);
    expect_set(2, 1, 1 << 0 | 1 << 1); /* the answer to a late rank is also a result */
}

static void a_set_goes_over_a_connection_once(void **state)
{
    start(chosen_ones, false);
    spec.id = OTHER_PIECE;
    rig_place_piece(&rig, RANKS, spec, false);
    choose(0, 1, 1 << 0 | 1 << 1);
    for (uint32_t rank = 0; rank < 2; rank++) {
        push(rank, 1, 4);
        rig_say(&rig, rank,
                (struct say){.piece = OTHER_PIECE,
                             .word = 77,
                             .round = 1,
                             .elements = ELEMENTS,
                             .operation = RECORD_MEAN,
                             .epoch = epoch});
    }
    rig_until(&rig, rig.workers[0].commits_count == 2 && rig.workers[1].commits_count == 2);
    assert_int_equal(rig.workers[1].words_count, 2);
    expect_set(1, 1, 1 << 0 | 1 << 1);
}

/* --- records for backup workers --- */

static void a_leader_names_reason_and_epoch_of_its_set(void **state)
{
    struct lane_terms leads = first_two;
    leads.role = LEADS_SETS;
    start(leads, false);
    push(2, 1, 2);
    push(0, 1, 6);
    expect_made(0, 1, 4);
    assert_int_equal(rig.workers[0].chosen_count, 1);
    const struct record_chosen *chosen = &rig.workers[0].chosen;
    assert_int_equal(chosen->reason, RECORD_REASON_GAIN);
    assert_int_equal(chosen->form, RECORD_FORM_RANKS);
    assert_int_equal(chosen->epoch, epoch);
    assert_int_equal(chosen->ranks[0], 1 << 0 | 1 << 2);
}

static void a_set_of_all_ranks_has_the_reason_all(void **state)
{
    start((struct lane_terms){.quorum = QUORUM_FIRST, .bound = RANKS, .role = LEADS_SETS}, false);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        push(rank, 1, 3);
    expect_made(0, 1, 3);
    assert_int_equal(rig.workers[0].chosen.reason, RECORD_REASON_ALL);
}

static void expect_cut_off(uint32_t rank)
{
    rig_until(&rig, rig.workers[rank].is_closed && rig.failures == 1);
}

static void several_gradients_of_a_rank_cut_their_sender_off(void **state)
{
    struct record_chosen chosen = {
        .kind = RECORD_CHOSEN, .form = RECORD_FORM_COUNTS, .round = 1, .ranks = {1, 0, 0, 0, 1}};
    start(chosen_ones, false);
    assert_int_equal(fabric_send(rig.workers[1].conn, &chosen, sizeof chosen, NULL, 0), 0);
    expect_cut_off(1);
}

static void a_record_for_backup_workers_cuts_its_sender_off(void **state)
{
    const struct record_landed landed = {.kind = RECORD_LANDED, .piece = PIECE, .round = 1};
    start(chosen_ones, false);
    assert_int_equal(fabric_send(rig.workers[1].conn, &landed, sizeof landed, NULL, 0), 0);
    expect_cut_off(1);
}

static void a_result_is_fetched_in_jobs_with_backup_workers_only(void **state)
{
    start(chosen_ones, false);
    rig_say(&rig, 1,
            (struct say){.piece = PIECE,
                         .word = word_of(1),
                         .round = 1,
                         .elements = ELEMENTS,
                         .standing = RECORD_TAKES,
                         .has_no_input = true});
    rig_until(&rig, rig.workers[1].errors_count == 1);
    assert_int_equal(rig.workers[1].error.code, -EOPNOTSUPP);
    assert_int_equal(rig.workers[1].error.word, word_of(1));
    choose(0, 1, 1 << 0 | 1 << 2);
    push(0, 1, 2);
    push(2, 1, 6);
    expect_made(0, 1, 4);
}

/* --- changes of workers --- */

static void a_round_whose_ranks_have_all_left_has_the_remaining_ranks(void **state)
{
    start_elastic(chosen_ones);
    choose(0, 1, 1 << 2);
    push(0, 1, 2);
    push(1, 1, 6);
    rig_settle(&rig);
    regroup(3);
    push(0, 1, 2);
    push(1, 1, 6);
    expect_made(0, 1, 4);
    expect_made(1, 1, 4);
    choose(0, 2, 1 << 1);
    push(0, 2, 1000);
    push(1, 2, 8);
    expect_made(1, 2, 8);
    expect_late(0, 2, 2, 8);
}

static void a_round_is_made_without_a_chosen_rank_that_has_left(void **state)
{
    start_elastic(chosen_ones);
    choose(0, 1, 1 << 1 | 1 << 2);
    push(0, 1, 1000);
    push(1, 1, 6);
    rig_settle(&rig);
    regroup(3);
    push(0, 1, 1000);
    push(1, 1, 6);
    expect_made(1, 1, 6);
    expect_late(0, 1, 1, 6);
}

static void a_set_other_than_that_of_a_lost_rank_disconnects_no_rank(void **state)
{
    start_elastic(chosen_ones);
    choose(2, 1, 1 << 0 | 1 << 2);
    rig_settle(&rig);
    regroup(3);
    choose(1, 1, 1 << 0 | 1 << 1);
    push(0, 1, 2);
    push(1, 1, 1000);
    expect_made(0, 1, 2); /* the ranks of the first two announcements form the set */
    expect_late(1, 1, 1, 2);
}

static void the_first_ranks_continue_without_a_lost_rank(void **state)
{
    start_elastic(first_two);
    push(1, 1, 6);
    rig_settle(&rig);
    regroup(5);
    push(0, 1, 2);
    push(2, 1, 8);
    expect_made(0, 1, 5);
    expect_made(2, 1, 5);
}

static void late_ranks_get_the_kept_result_after_a_change(void **state)
{
    start_elastic(first_two);
    push(0, 1, 2);
    push(1, 1, 6);
    expect_made(0, 1, 4);
    expect_made(1, 1, 4);
    regroup(5);
    stand(0, 1, RECORD_IDLE);
    push(2, 1, 1000);
    expect_late(2, 1, 1, 4);
    push(0, 2, 2);
    push(2, 2, 4);
    expect_made(0, 2, 3);
    expect_made(2, 2, 3);
}

/* Another piece of the tensor has not reached this round, so the round is repeated (W15). */
static void a_kept_result_of_a_repeated_round_is_no_answer(void **state)
{
    start_elastic(first_two);
    push(0, 1, 2);
    push(1, 1, 6);
    expect_made(0, 1, 4);
    expect_made(1, 1, 4);
    push(0, 2, 2);
    push(1, 2, 6);
    expect_commit(0, 2);
    expect_commit(1, 2);
    regroup(7);
    push(2, 1, 1000);
    push(0, 2, 10);
    push(1, 2, 20);
    expect_made(0, 2, 15);
    expect_made(1, 2, 15);
    expect_late(2, 1, 2, 15);
}

/* ---- rounds that a lost rank blocked ---- */

/* number of elements that need several turns of a lane */
#define LONG (RIG_LANDING / sizeof(float))
#define OTHER OTHER_PIECE

static void say_long(uint32_t rank, uint32_t id)
{
    struct say say = {.piece = id, .word = word_of(id), .round = 1, .elements = LONG};
    say.epoch = epoch;
    rig_say(&rig, rank, say);
}

/* Loses a rank during a round of the first of two pieces. This piece then uses all transfers for
 * long chunks. */
static void lose_one_of(struct lane_terms terms, struct lane_terms of_other, bool other_waits)
{
    /* drops the short piece, and places the piece again with the length of a long piece */
    start_elastic(terms);
    lane_drop(rig.lane, RIG_JOB, &piece, 1);
    spec.elements = LONG;
    rig_place_piece(&rig, RANKS, spec, false);
    spec.id = OTHER;
    spec.terms = of_other;
    rig_place_piece(&rig, RANKS, spec, false);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        say_long(rank, PIECE);
    rig_until_busy(&rig);
    for (uint32_t rank = 0; other_waits && rank < 2; rank++)
        say_long(rank, OTHER);
    fabric_disconnect(rig.workers[2].conn);
    rig_until(&rig, rig.failures > 0); /* the lane has reported the failure */
    rig_settle(&rig);
}

static void release_without_two(const uint32_t *pieces, size_t count)
{
    const uint64_t gone[RECORD_MISSING_WORDS] = {4};
    assert_int_equal(lane_release(rig.lane, RIG_JOB, pieces, count), 0);
    lane_let_go(rig.lane, RIG_JOB, gone);
    rig_until(&rig, lane_rested(rig.lane, RIG_JOB, pieces, count) == count);
}

static void a_round_that_waited_behind_one_that_is_given_up_ends(void **state)
{
    lose_one_of((struct lane_terms){0}, first_two, true);
    release_without_two((uint32_t[]){PIECE, OTHER}, 2);
    rig_until(&rig, rig.workers[0].commits_count == 1 && rig.workers[1].commits_count == 1);
}

/* The tensor has failed, so the ranks of the piece do not change. */
static void a_round_of_an_unchanged_piece_delays_no_rank(void **state)
{
    const uint32_t other = OTHER;
    lose_one_of((struct lane_terms){.quorum = QUORUM_FIRST, .bound = 3}, (struct lane_terms){0},
                false);
    release_without_two(&other, 1);
    set[0] = 3;
    assert_int_equal(lane_regroup(rig.lane, RIG_JOB, ++epoch, &spec, 1), 0);
    for (uint32_t rank = 0; rank < 2; rank++)
        say_long(rank, OTHER);
    rig_until(&rig, rig.workers[0].commits_count == 1 && rig.workers[1].commits_count == 1);
    lane_drop(rig.lane, RIG_JOB, &piece, 1);
    rig_until(&rig, lane_is_quiet(rig.lane));
}

#define CASE(test) cmocka_unit_test_teardown(test, stop)

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "shm";
    const struct CMUnitTest tests[] = {
        CASE(the_open_round_is_made_by_its_set_though_the_leader_is_further),
        CASE(the_result_of_one_rank_is_copied_even_without_the_set),
        CASE(a_rank_of_the_last_round_has_its_result),
        CASE(a_rank_of_a_round_long_ago_continues_after_that_round),
        CASE(a_result_that_is_lost_and_needed_is_an_error_not_a_standstill),
        CASE(without_a_known_set_no_rank_waits_for_ever),
        CASE(a_later_set_that_needs_a_rank_without_a_lost_result_is_an_error),
        CASE(a_rank_that_needs_a_lost_result_later_is_told_of_the_loss),
        CASE(ranks_whose_result_left_with_another_rank_are_told_of_the_loss),
        CASE(a_rank_with_a_result_has_its_set),
        CASE(a_set_goes_over_a_connection_once),
        CASE(a_leader_names_reason_and_epoch_of_its_set),
        CASE(a_set_of_all_ranks_has_the_reason_all),
        CASE(several_gradients_of_a_rank_cut_their_sender_off),
        CASE(a_record_for_backup_workers_cuts_its_sender_off),
        CASE(a_result_is_fetched_in_jobs_with_backup_workers_only),
        CASE(a_round_whose_ranks_have_all_left_has_the_remaining_ranks),
        CASE(a_round_is_made_without_a_chosen_rank_that_has_left),
        CASE(a_set_other_than_that_of_a_lost_rank_disconnects_no_rank),
        CASE(the_first_ranks_continue_without_a_lost_rank),
        CASE(late_ranks_get_the_kept_result_after_a_change),
        CASE(a_kept_result_of_a_repeated_round_is_no_answer),
        CASE(a_round_that_waited_behind_one_that_is_given_up_ends),
        CASE(a_round_of_an_unchanged_piece_delays_no_rank),
    };
    return cmocka_run_group_tests_name(kind, tests, NULL, NULL);
}
