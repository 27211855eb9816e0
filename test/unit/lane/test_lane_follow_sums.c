/* Tests pieces whose sums follow the sets of the job (A95, W22). The set of the job's round
 * determines which gradients are summed. A rank outside the set requests the result of every round,
 * in order. The test acts as the leader lane. */
#include "svc/lane/move/moved_state.h"
#include "svc/lane/move/release.h"
#include "svc/wire/terms.h"
#include "test/unit/lane/lane_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 3
#define LATE 2 /* the rank outside most sets */
#define LAG 3
#define W 1
#define ELEMENTS (100000 / TRANSFER_SHORTER) /* two chunks */
#define BYTES (ELEMENTS * sizeof(float))
#define TWO (1u << 0 | 1u << 1)
#define ALL 7u
#define TAKE_WORD 1000

static const char *kind;
static struct rig rig;
static bool is_scaled; /* the rate of the job is proportional to the ranks of a round */
static const struct lane_piece spec = {
    .id = W,
    .dtype = REDUCE_F32,
    .elements = ELEMENTS,
    .tensor = "w",
    .terms = {.quorum = QUORUM_CHOSEN, .role = FOLLOWS_ROUNDS, .lag = LAG}};

static int stop(void **state)
{
    rig_stop(&rig);
    is_scaled = false;
    return 0;
}

static void start(bool recovering)
{
    rig_start(&rig, kind);
    const struct backup_terms terms = {
        .rule = BACKUP_TERMS_STATIC, .k = 2, .rate = BACKUP_TERMS_PROPORTIONAL};
    struct lane_piece placed = spec;
    placed.backup = is_scaled ? &terms : NULL;
    rig_place_piece(&rig, RANKS, placed, recovering);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        rig_connect(&rig, rank, RIG_JOB, rank);
    rig.count = RANKS;
}

static void choose(uint32_t by, uint64_t round, uint64_t ranks)
{
    struct record_chosen chosen = {.kind = RECORD_CHOSEN, .round = round, .ranks = {ranks}};
    assert_int_equal(fabric_send(rig.workers[by].conn, &chosen, sizeof chosen, NULL, 0), 0);
}

/* Announces a round. `root` is the number of the round in the job. */
static void say_of(uint32_t rank, uint64_t round, uint64_t root, uint8_t operation,
                   uint8_t standing)
{
    bool gives = standing == RECORD_ANNOUNCE || standing == RECORD_HOLDS;
    rig_say(&rig, rank,
            (struct say){.piece = W,
                         .word = (uint32_t)round + TAKE_WORD * (standing == RECORD_TAKES),
                         .round = round,
                         .root = (uint32_t)root,
                         .elements = ELEMENTS,
                         .operation = operation,
                         .standing = standing,
                         .has_no_input = !gives,
                         .has_no_output = standing == RECORD_IDLE});
}

static void say(uint32_t rank, uint64_t round, uint8_t operation, uint8_t standing)
{
    say_of(rank, round, round, operation, standing);
}

static float gradient(uint32_t rank, uint64_t round, uint64_t e)
{
    return (float)((rank * 7 + round * 13 + e) % 64);
}

static void push(uint32_t rank, uint64_t round)
{
    for (uint64_t e = 0; e < ELEMENTS; e++)
        rig_input(&rig, rank, 0)[e] = gradient(rank, round, e);
    say(rank, round, RECORD_MEAN, RECORD_ANNOUNCE);
}

static void take(uint32_t rank, uint64_t round) { say(rank, round, RECORD_MEAN, RECORD_TAKES); }

static void expect_mean(uint32_t rank, uint64_t round, uint64_t ranks)
{
    for (uint64_t e = 0; e < ELEMENTS; e++) {
        float sum = 0, count = 0;
        for (uint32_t i = 0; i < RANKS; i++) {
            sum += ranks >> i & 1 ? gradient(i, round, e) : 0;
            count += (float)(ranks >> i & 1);
        }
        assert_true(rig_landing(&rig, rank, 0)[e] == sum / (is_scaled ? (float)RANKS : count));
    }
}

static void expect_commit(uint32_t rank, uint64_t round)
{
    const struct rig_worker *w = &rig.workers[rank];
    rig_until(&rig, w->commits_count > 0 && w->commits[w->commits_count - 1] == round);
    assert_int_equal(w->errors_count, 0);
}

/* Checks that the rank has received `answers` answers, and that the last answer has the result of
 * this round and this set. */
static void expect_taken(uint32_t rank, int answers, uint64_t round, uint64_t ranks)
{
    const struct rig_worker *w = &rig.workers[rank];
    rig_until(&rig, w->closed_count == answers);
    assert_int_equal(w->closed[answers - 1].word, round + TAKE_WORD);
    assert_int_equal(w->closed[answers - 1].round, round);
    assert_int_equal(w->words[w->words_count - 1], round + TAKE_WORD);
    assert_int_equal(w->errors_count, 0);
    expect_mean(rank, round, ranks);
}

static void round_of_two(uint64_t round)
{
    choose(0, round, TWO);
    push(0, round);
    push(1, round);
    expect_commit(0, round);
    expect_commit(1, round);
    expect_mean(0, round, TWO);
    expect_mean(1, round, TWO);
}

/* The result of a former round is copied, and not divided again. */
static void a_proportional_rate_divides_by_the_number_of_all_ranks(void **state)
{
    is_scaled = true;
    start(false);
    round_of_two(1);
    take(LATE, 1);
    expect_taken(LATE, 1, 1, TWO);
    round_of_two(2);
    stop(state);
    is_scaled = true;
    start(true);
    choose(0, 3, TWO);
    for (uint64_t e = 0; e < ELEMENTS; e++)
        rig_landing(&rig, 0, 0)[e] = (gradient(0, 3, e) + gradient(1, 3, e)) / RANKS;
    say(0, 3, RECORD_MEAN, RECORD_HOLDS);
    push(1, 3);
    say(LATE, 2, RECORD_MEAN, RECORD_IDLE);
    expect_commit(1, 3);
    expect_mean(1, 3, TWO);
}

/* Runs a round of ranks 0 and 1. `of_job` is the number of the round in the job. */
static void round_of_two_from(uint64_t round, uint64_t of_job)
{
    choose(0, of_job, TWO);
    say_of(0, round, of_job, RECORD_MEAN, RECORD_ANNOUNCE);
    say_of(1, round, of_job, RECORD_MEAN, RECORD_ANNOUNCE);
    expect_commit(0, round);
    expect_commit(1, round);
}

static void rounds_of_two(uint64_t last)
{
    for (uint64_t round = 1; round <= last; round++)
        round_of_two(round);
}

static void expect_lost(uint32_t rank, uint64_t round)
{
    char words[128];
    snprintf(words, sizeof words, "rank %u of job 'job' lacks the result of round %u",
             (unsigned)LATE, (unsigned)round);
    rig_until(&rig, rig.workers[rank].errors_count > 0);
    assert_true(rig_says(&rig.workers[rank], -EOWNERDEAD, words));
}

/* --- the set makes the sum --- */

static void the_mean_is_over_the_set_and_not_over_all_ranks(void **state)
{
    start(false);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        push(rank, 1);
    rig_settle(&rig);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        assert_int_equal(rig.workers[rank].words_count, 0); /* no rank gets a word before the lane
                                                             * knows the set */
    choose(0, 1, TWO);
    expect_commit(0, 1);
    expect_commit(1, 1);
    expect_mean(0, 1, TWO);
    expect_mean(1, 1, TWO);
    rig_settle(&rig);
    /* the rank gets no answer before it requests a result */
    assert_int_equal(rig.workers[LATE].words_count, 0);
    take(LATE, 1);
    expect_taken(LATE, 1, 1, TWO);
    choose(1, 2, ALL);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        push(rank, 2);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        expect_commit(rank, 2);
        expect_mean(rank, 2, ALL);
    }
}

static void a_broadcast_is_a_round_of_all_ranks_and_none_of_the_job(void **state)
{
    start(false);
    choose(0, 1, TWO);
    for (uint64_t e = 0; e < ELEMENTS; e++)
        rig_input(&rig, 0, 0)[e] = gradient(0, 1, e);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        rig_say(&rig, rank,
                (struct say){.piece = W,
                             .word = 1,
                             .round = 1,
                             .elements = ELEMENTS,
                             .operation = RECORD_BROADCAST,
                             .has_no_input = rank > 0,
                             .has_no_output = rank == 0});
    for (uint32_t rank = 0; rank < RANKS; rank++)
        expect_commit(rank, 1);
    assert_memory_equal(rig_landing(&rig, LATE, 0), rig_input(&rig, 0, 0), BYTES);
}

static void an_operation_with_blocks_is_refused(void **state)
{
    start(false);
    say(0, 1, RECORD_GATHER, RECORD_ANNOUNCE);
    rig_until(&rig, rig.workers[0].errors_count == 1);
    assert_true(
        rig_says(&rig.workers[0], -EOPNOTSUPP, "gather is not defined for the declared quorum"));
}

static void terms_without_sense_are_refused(void **state)
{
    static const struct lane_terms wrong[] = {
        {.quorum = QUORUM_CHOSEN, .role = FOLLOWS_ROUNDS},
        {.quorum = QUORUM_CHOSEN, .role = FOLLOWS_ROUNDS, .lag = TERMS_LAG_MAX + 1},
        {.quorum = QUORUM_CHOSEN, .role = FOLLOWS_ROUNDS, .lag = 1, .rule = UPDATE_SGD},
        {.quorum = QUORUM_ALL, .role = FOLLOWS_ROUNDS, .lag = 1},
        {.quorum = QUORUM_CHOSEN, .lag = 1},
        {.quorum = QUORUM_FIRST, .bound = 1, .role = LEADS_SETS, .lag = 1},
        {.quorum = QUORUM_FIRST, .bound = 1, .role = LEADS_ROUNDS, .lag = TERMS_LAG_MAX + 1}};
    start(false);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct lane_piece piece = spec;
        piece.id = 9;
        piece.terms = wrong[i];
        assert_int_equal(lane_place(rig.lane, RIG_JOB, "job", RANKS, 1, false, &piece, 1), -EINVAL);
    }
}

/* --- the results of more rounds --- */

static void a_rank_takes_every_result_in_order(void **state)
{
    start(false);
    push(LATE, 1);
    rounds_of_two(LAG);
    for (uint64_t round = 1; round <= LAG; round++) {
        take(LATE, round);
        expect_taken(LATE, (int)round, round, TWO);
    }
    choose(0, LAG + 1, ALL);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        push(rank, LAG + 1);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        expect_commit(rank, LAG + 1);
    expect_mean(LATE, LAG + 1, ALL);
}

static void a_rank_that_waits_for_a_round_gets_its_result_first(void **state)
{
    start(false);
    round_of_two(1);
    take(LATE, 2); /* the result of round 2 does not exist yet */
    rig_settle(&rig);
    assert_int_equal(rig.workers[LATE].closed_count, 0);
    round_of_two(2);
    expect_taken(LATE, 1, 2, TWO);
}

/* Rank 2 lacks a result that a later round has overwritten. The leader lane of a real job would not
 * have closed that round. */
static void a_result_that_was_overwritten_fails_the_job_in_words(void **state)
{
    start(false);
    rounds_of_two(LAG + 1);
    take(LATE, 1);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        rig_until(&rig, rig.workers[rank].errors_count > 0);
        assert_true(rig_says(&rig.workers[rank], -EOWNERDEAD,
                             "rank 2 lacks the result of round 1, overwritten by round 4 (lag 3); "
                             "start"));
    }
}

/* Until a round ends, the rank's announcement of the round determines the memory that the lane
 * reads and writes. During this time the rank must not request a result. */
static void a_request_in_the_middle_of_the_own_round_is_refused(void **state)
{
    start(false);
    choose(0, 1, TWO);
    push(0, 1);
    rig_settle(&rig);
    push(1, 1); /* starts the round */
    take(1, 1);
    rig_until(&rig, rig.workers[1].errors_count == 1);
    assert_true(rig_says(&rig.workers[1], -EPROTO, "round 1 announced, round 1 is open"));
    expect_commit(0, 1);
    expect_mean(0, 1, TWO);
}

static void other_types_than_floats_are_taken_too(void **state)
{
    struct lane_piece doubles = spec;
    doubles.dtype = REDUCE_F64;
    doubles.elements = ELEMENTS / 2;
    rig_start(&rig, kind);
    rig_place_piece(&rig, RANKS, doubles, false);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        rig_connect(&rig, rank, RIG_JOB, rank);
    rig.count = RANKS;
    double *input = (double *)rig_input(&rig, 0, 0), *taken = (double *)rig_landing(&rig, LATE, 0);
    for (uint64_t e = 0; e < doubles.elements; e++)
        input[e] = 1.0 / (double)(e + 1);
    const struct say give = {.piece = W,
                             .word = 1,
                             .round = 1,
                             .root = 1,
                             /* size of a memory area, as a number of floats */
                             .elements = ELEMENTS,
                             .dtype = REDUCE_F64,
                             .operation = RECORD_SUM};
    struct say wish = give;
    wish.standing = RECORD_TAKES;
    wish.word = TAKE_WORD;
    wish.has_no_input = true;
    choose(0, 1, 1u << 0);
    rig_say(&rig, 0, give);
    expect_commit(0, 1);
    rig_say(&rig, LATE, wish);
    rig_until(&rig, rig.workers[LATE].closed_count == 1);
    assert_memory_equal(taken, input, doubles.elements * sizeof *taken);
}

/* --- a new owner --- */

/* Moves the piece after `round`. The new owner is the same lane. */
static void move(uint64_t round)
{
    static char moved[LANE_STATE_HEAD_BYTES + LAG * BYTES];
    const uint32_t piece = W;
    assert_int_equal(lane_release(rig.lane, RIG_JOB, &piece, 1), 0);
    rig_until(&rig, lane_rested(rig.lane, RIG_JOB, &piece, 1) == 1);
    int64_t bytes = lane_state_read(rig.lane, RIG_JOB, W, 0, moved, sizeof moved);
    assert_in_range(bytes, LAG * BYTES, sizeof moved);
    lane_drop(rig.lane, RIG_JOB, &piece, 1);
    rig_place_piece(&rig, RANKS, spec, true);
    assert_int_equal(lane_state_put(rig.lane, RIG_JOB, W, 0, moved, (size_t)bytes), 0);
    assert_int_equal(lane_install(rig.lane, RIG_JOB, &piece, &round, 1), 0);
}

static void a_new_owner_has_all_stored_results(void **state)
{
    start(false);
    rounds_of_two(4);
    move(4);
    for (uint64_t r = 2; r <= 4; r++) { /* the first request also reports the rank's last round */
        take(LATE, r);
        expect_taken(LATE, (int)r - 1, r, TWO);
    }
    choose(0, 5, ALL);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        push(rank, 5);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        expect_commit(rank, 5);
    expect_mean(0, 5, ALL);
}

static void a_result_that_died_with_its_lane_fails_the_job_in_words(void **state)
{
    start(true);
    say(0, 2, RECORD_MEAN, RECORD_IDLE);
    say(1, 2, RECORD_MEAN, RECORD_IDLE);
    take(LATE, 2);
    expect_lost(0, 2);
    expect_lost(LATE, 2);
}

static void a_lane_that_dies_loses_no_result_that_all_ranks_have(void **state)
{
    start(true);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        say(rank, 2, RECORD_MEAN, RECORD_IDLE);
    choose(0, 3, TWO);
    push(0, 3);
    push(1, 3);
    expect_commit(0, 3);
    expect_commit(1, 3);
    take(LATE, 3);
    expect_taken(LATE, 1, 3, TWO);
}

static void hold(uint32_t rank, uint64_t round, uint64_t ranks)
{
    for (uint64_t e = 0; e < ELEMENTS; e++) {
        float sum = 0, count = 0;
        for (uint32_t i = 0; i < RANKS; i++) {
            sum += ranks >> i & 1 ? gradient(i, round, e) : 0;
            count += (float)(ranks >> i & 1);
        }
        rig_landing(&rig, rank, 0)[e] = sum / count;
    }
    say(rank, round, RECORD_MEAN, RECORD_HOLDS);
}

/* The lane died after one rank of the set had received its word. */
static void a_new_owner_copies_a_result_to_the_ranks_of_its_set_only(void **state)
{
    start(true);
    choose(0, 2, TWO);
    hold(0, 2, TWO);
    push(1, 2);
    push(LATE, 2);
    expect_commit(0, 2);
    expect_commit(1, 2);
    expect_mean(1, 2, TWO);
    rig_settle(&rig);
    assert_int_equal(rig.workers[LATE].words_count, 0);
    assert_int_equal(rig.workers[LATE].commits_count, 0);
    take(LATE, 2);
    expect_taken(LATE, 1, 2, TWO);
    round_of_two(3);
}

/* No announcement contains the number that the open round has in the job. */
static void a_new_owner_commits_a_round_again_to_a_rank_of_its_set(void **state)
{
    const uint64_t of_job = 7; /* number that the tensor's round 2 has in the job */
    start(true);
    choose(0, of_job, TWO);
    say_of(0, 2, of_job, RECORD_MEAN, RECORD_IDLE);
    say_of(1, 2, of_job, RECORD_MEAN, RECORD_ANNOUNCE);
    say_of(LATE, 2, of_job, RECORD_MEAN, RECORD_ANNOUNCE);
    expect_commit(1, 2);
    rig_settle(&rig);
    assert_int_equal(rig.workers[LATE].commits_count, 0); /* the leader lane answers this rank */
    assert_int_equal(rig.workers[LATE].errors_count, 0);
}

static void a_new_owner_commits_a_broadcast_again_to_every_rank(void **state)
{
    start(true);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        rig_say(&rig, rank,
                (struct say){.piece = W,
                             .word = 1,
                             .round = 1,
                             .elements = ELEMENTS,
                             .operation = RECORD_BROADCAST,
                             .standing = rank == 0 ? RECORD_IDLE : RECORD_ANNOUNCE,
                             .has_no_input = true,
                             .has_no_output = rank == 0});
    expect_commit(1, 1);
    expect_commit(LATE, 1);
    round_of_two_from(2, 1);
}

static void a_new_owner_copies_a_broadcast_to_every_rank(void **state)
{
    start(true);
    for (uint64_t e = 0; e < ELEMENTS; e++)
        rig_landing(&rig, 0, 0)[e] = gradient(1, 1, e);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        rig_say(&rig, rank,
                (struct say){.piece = W,
                             .word = 1,
                             .round = 1,
                             .root = 1,
                             .elements = ELEMENTS,
                             .operation = RECORD_BROADCAST,
                             .standing = rank == 0 ? RECORD_HOLDS : RECORD_ANNOUNCE,
                             .has_no_input = rank != 1,
                             .has_no_output = rank == 1});
    for (uint32_t rank = 0; rank < RANKS; rank++)
        expect_commit(rank, 1);
    assert_memory_equal(rig_landing(&rig, LATE, 0), rig_landing(&rig, 0, 0), BYTES);
}

/* Rank 1 was in the set of round 1, and reports this round to a new owner after round 6. */
static void report_round_1_behind(uint8_t standing)
{
    const struct rig_worker *w = &rig.workers[1];
    start(false);
    rounds_of_two(1);
    for (uint64_t round = 2; round <= 6; round++) {
        choose(0, round, 1u << 0 | 1u << LATE);
        push(0, round);
        push(LATE, round);
        expect_commit(0, round);
        expect_commit(LATE, round);
    }
    move(6);
    say(1, 1, RECORD_MEAN, standing);
    rig_until(&rig, w->commits_count == 2 || w->closed_count > 0 || w->errors_count > 0);
    assert_true(w->commits_count == 2 && w->commits[1] == 1); /* no later round is named */
}

static void a_rank_of_an_older_set_gets_its_commit_again(void **state)
{
    report_round_1_behind(RECORD_ANNOUNCE);
    stop(state);
    report_round_1_behind(RECORD_HOLDS);
}

#define CASE(test) cmocka_unit_test_teardown(test, stop)

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "shm";
    const struct CMUnitTest tests[] = {
        CASE(a_proportional_rate_divides_by_the_number_of_all_ranks),
        CASE(the_mean_is_over_the_set_and_not_over_all_ranks),
        CASE(a_broadcast_is_a_round_of_all_ranks_and_none_of_the_job),
        CASE(an_operation_with_blocks_is_refused),
        CASE(terms_without_sense_are_refused),
        CASE(a_rank_takes_every_result_in_order),
        CASE(a_rank_that_waits_for_a_round_gets_its_result_first),
        CASE(a_result_that_was_overwritten_fails_the_job_in_words),
        CASE(a_request_in_the_middle_of_the_own_round_is_refused),
        CASE(other_types_than_floats_are_taken_too),
        CASE(a_new_owner_has_all_stored_results),
        CASE(a_result_that_died_with_its_lane_fails_the_job_in_words),
        CASE(a_lane_that_dies_loses_no_result_that_all_ranks_have),
        CASE(a_new_owner_copies_a_result_to_the_ranks_of_its_set_only),
        CASE(a_new_owner_commits_a_round_again_to_a_rank_of_its_set),
        CASE(a_new_owner_commits_a_broadcast_again_to_every_rank),
        CASE(a_new_owner_copies_a_broadcast_to_every_rank),
        CASE(a_rank_of_an_older_set_gets_its_commit_again),
    };
    return cmocka_run_group_tests_name(kind, tests, NULL, NULL);
}
