/* Tests how a new owner finds the round of a piece (W5). The standings, which are the ranks'
 * reports of their last round, arrive in every order. Uses shared memory and libfabric. */
#include "test/unit/lane/lane_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const char *kind;
static struct rig rig;

static int stop(void **state)
{
    rig_stop(&rig);
    return 0;
}

static void say_goodbye(uint32_t i)
{
    struct record_leave leave = {.kind = RECORD_LEAVE};
    assert_int_equal(fabric_send(rig.workers[i].conn, &leave, sizeof leave, NULL, 0), 0);
}

static void start_recovering(uint32_t workers, uint64_t elements)
{
    rig_start(&rig, kind);
    rig_place(&rig, RIG_JOB, workers, 1, 1, elements, true);
    for (uint32_t i = 0; i < workers; i++)
        rig_connect(&rig, i, RIG_JOB, i);
}

static void a_new_owner_sums_again_when_no_rank_has_the_result(void **state)
{
    start_recovering(2, 100);
    for (uint32_t rank = 0; rank < 2; rank++) {
        rig_input(&rig, rank, 0)[7] = (float)(rank + 1);
        rig_settle(&rig);
        assert_int_equal(rig.workers[0].words_count, 0);
        rig_say(&rig, rank,
                (struct say){.piece = 1, .word = 10 + rank, .round = 5, .elements = 100});
    }
    rig_until(&rig, rig.workers[0].commits_count == 1 && rig.workers[1].commits_count == 1);
    assert_true(rig_landing(&rig, 1, 0)[7] == 3.0f);
}

static void a_new_owner_copies_a_result_that_a_rank_holds(void **state)
{
    start_recovering(3, 100);
    /* changes the input, because the lane must not sum the input again */
    rig_landing(&rig, 1, 0)[7] = 42.0f;
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 10, .round = 5, .elements = 100});
    rig_say(&rig, 1,
            (struct say){
                .piece = 1, .word = 11, .round = 5, .elements = 100, .standing = RECORD_HOLDS});
    rig_settle(&rig);
    assert_int_equal(rig.workers[0].words_count, 0);
    rig_say(&rig, 2, (struct say){.piece = 1, .word = 12, .round = 5, .elements = 100});
    rig_until(&rig, rig.workers[0].commits_count == 1 && rig.workers[1].commits_count == 1 &&
                        rig.workers[2].commits_count == 1);
    assert_true(rig_landing(&rig, 0, 0)[7] == 42.0f);
    assert_true(rig_landing(&rig, 2, 0)[7] == 42.0f);
    assert_int_equal(rig.workers[1].words_count, 0);
    assert_int_equal(rig.workers[0].words_count, 1);
}

static void a_new_owner_commits_a_round_that_a_rank_has_as_committed(void **state)
{
    start_recovering(2, 100);
    rig_say(&rig, 0,
            (struct say){
                .piece = 1, .word = 10, .round = 5, .elements = 100, .standing = RECORD_HOLDS});
    rig_say(&rig, 1, (struct say){.piece = 1, .word = 11, .round = 6, .elements = 100});
    rig_until(&rig, rig.workers[0].commits_count == 1);
    assert_int_equal(rig.workers[0].commits[0], 10);
    rig_input(&rig, 0, 0)[0] = 1.0f;
    rig_input(&rig, 1, 0)[0] = 2.0f;
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 12, .round = 6, .elements = 100});
    rig_until(&rig, rig.workers[0].commits_count == 2 && rig.workers[1].commits_count == 1);
    assert_true(rig_landing(&rig, 1, 0)[0] == 3.0f);
}

static void idle_workers_go_on_with_the_next_round_at_the_new_owner(void **state)
{
    start_recovering(2, 100);
    for (uint32_t rank = 0; rank < 2; rank++)
        rig_say(&rig, rank,
                (struct say){.piece = 1,
                             .word = 0,
                             .round = 5,
                             .standing = RECORD_IDLE,
                             .has_no_input = true,
                             .has_no_output = true});
    rig_settle(&rig);
    assert_int_equal(rig.workers[0].errors_count, 0);
    for (uint32_t rank = 0; rank < 2; rank++)
        rig_say(&rig, rank, (struct say){.piece = 1, .word = 1, .round = 6, .elements = 100});
    rig_until(&rig, rig.workers[0].commits_count == 1 && rig.workers[1].commits_count == 1);
}

static void a_round_that_all_ranks_hold_is_committed(void **state)
{
    start_recovering(2, 100);
    for (uint32_t rank = 0; rank < 2; rank++)
        rig_say(&rig, rank,
                (struct say){
                    .piece = 1, .word = 3, .round = 5, .elements = 100, .standing = RECORD_HOLDS});
    rig_until(&rig, rig.workers[0].commits_count == 1 && rig.workers[1].commits_count == 1);
}

/* The result is in the landing area of the rank (W4). Only its COMMIT was lost. */
static void a_worker_that_missed_the_commit_of_a_round_gets_it(void **state)
{
    start_recovering(2, 100);
    rig_landing(&rig, 0, 0)[7] = 42.0f;
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 1, .round = 5, .elements = 100});
    rig_say(&rig, 1, (struct say){.piece = 1, .word = 2, .round = 6, .elements = 100});
    rig_until(&rig, rig.workers[0].commits_count == 1);
    assert_int_equal(rig.workers[0].commits[0], 1);
    assert_int_equal(rig.workers[0].words_count, 0);
    assert_true(rig_landing(&rig, 0, 0)[7] == 42.0f);
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 3, .round = 6, .elements = 100});
    rig_until(&rig, rig.workers[0].commits_count == 2 && rig.workers[1].commits_count == 1);
}

static void a_worker_two_rounds_behind_is_an_error_not_a_wrong_sum(void **state)
{
    start_recovering(2, 100);
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 1, .round = 4, .elements = 100});
    rig_say(&rig, 1, (struct say){.piece = 1, .word = 2, .round = 6, .elements = 100});
    for (uint32_t rank = 0; rank < 2; rank++) {
        rig_until(&rig, rig.workers[rank].errors_count == 1);
        assert_true(rig_says(&rig.workers[rank], -EPROTO,
                             "rank 0 is in round 4, others committed 5; start the job again"));
    }
    assert_int_equal(rig.workers[0].words_count + rig.workers[1].words_count, 0);
}

/* Rank 0 has announced round 5 and round 6. The first record is its standing. The announcement of
 * round 6 does not prove that round 5 was committed. */
static void an_announcement_of_the_next_round_proves_no_commit_to_a_new_owner(void **state)
{
    start_recovering(2, 100);
    rig_input(&rig, 0, 0)[7] = 1.0f;
    rig_input(&rig, 1, 0)[7] = 2.0f;
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 1, .round = 5, .elements = 100});
    rig_say(&rig, 0,
            (struct say){.piece = 1, .word = 2, .round = 6, .elements = 100, .offset = 4096});
    rig_settle(&rig);
    rig_say(&rig, 1, (struct say){.piece = 1, .word = 3, .round = 5, .elements = 100});
    rig_until(&rig, rig.workers[0].words_count == 1 && rig.workers[1].commits_count == 1);
    assert_true(rig_landing(&rig, 1, 0)[7] == 3.0f);
    rig_say(&rig, 1, (struct say){.piece = 1, .word = 4, .round = 6, .elements = 100});
    rig_until(&rig, rig.workers[0].commits_count == 1 && rig.workers[1].commits_count == 2);
    assert_int_equal(rig.workers[0].commits[0], 2);
}

/* Sends the messages of a worker that has started round 6 without the COMMIT of round 5 (W5). */
static void say_kept_and_next(uint32_t rank)
{
    rig_say(
        &rig, rank,
        (struct say){.piece = 1, .word = 6, .round = 5, .elements = 100, .standing = RECORD_KEEPS});
    rig_settle(&rig); /* the record about the kept round is not a standing, so the lane waits */
    rig_say(&rig, rank,
            (struct say){.piece = 1, .word = 6, .round = 6, .elements = 100, .offset = 4096});
}

static void a_new_owner_copies_a_result_that_a_rank_stores(void **state)
{
    start_recovering(2, 100);
    rig_landing(&rig, 0, 0)[7] = 42.0f;
    rig_input(&rig, 0, 4096)[7] = 1.0f;
    rig_input(&rig, 1, 4096)[7] = 2.0f;
    rig_say(&rig, 1, (struct say){.piece = 1, .word = 5, .round = 5, .elements = 100});
    say_kept_and_next(0);
    rig_until(&rig, rig.workers[1].commits_count == 1);
    assert_int_equal(rig.workers[1].commits[0], 5);
    assert_true(rig_landing(&rig, 1, 0)[7] == 42.0f);
    rig_say(&rig, 1,
            (struct say){.piece = 1, .word = 7, .round = 6, .elements = 100, .offset = 4096});
    rig_until(&rig, rig.workers[0].commits_count == 1 && rig.workers[1].commits_count == 2);
    assert_int_equal(rig.workers[0].commits[0], 6);
    assert_true(rig_landing(&rig, 0, 4096)[7] == 3.0f);
    assert_true(rig_landing(&rig, 1, 4096)[7] == 3.0f);
}

static void a_round_whose_result_all_ranks_have_is_committed(void **state)
{
    start_recovering(2, 100);
    rig_input(&rig, 0, 4096)[7] = 1.0f;
    rig_input(&rig, 1, 4096)[7] = 2.0f;
    for (uint32_t rank = 0; rank < 2; rank++)
        say_kept_and_next(rank);
    rig_until(&rig, rig.workers[0].commits_count == 1 && rig.workers[1].commits_count == 1);
    assert_int_equal(rig.workers[0].commits[0], 6);
    assert_true(rig_landing(&rig, 1, 4096)[7] == 3.0f);
    assert_int_equal(rig.workers[0].words_count, 1);
}

/* The other rank has the COMMIT of round 6. This rank has the result of round 6, but the word for
 * this result was lost. */
static void a_rank_with_a_result_is_not_two_rounds_behind(void **state)
{
    start_recovering(2, 100);
    rig_landing(&rig, 1, 4096)[7] = 42.0f;
    rig_say(&rig, 0,
            (struct say){.piece = 1,
                         .word = 1,
                         .round = 6,
                         .standing = RECORD_IDLE,
                         .has_no_input = true,
                         .has_no_output = true});
    say_kept_and_next(1);
    rig_until(&rig, rig.workers[1].commits_count == 1);
    assert_int_equal(rig.workers[1].commits[0], 6);
    assert_int_equal(rig.workers[1].words_count + rig.workers[1].errors_count, 0);
    assert_true(rig_landing(&rig, 1, 4096)[7] == 42.0f);
}

static void a_result_is_kept_for_a_new_owner_only(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 100);
    rig_say(
        &rig, 0,
        (struct say){.piece = 1, .word = 6, .round = 1, .elements = 100, .standing = RECORD_KEEPS});
    rig_until(&rig, rig.workers[0].errors_count == 1);
    assert_int_equal(rig.workers[0].error.code, -EPROTO);
    for (uint32_t rank = 0; rank < 2; rank++)
        rig_say(&rig, rank, (struct say){.piece = 1, .word = 1, .round = 1, .elements = 100});
    rig_until(&rig, rig.workers[0].commits_count == 1 && rig.workers[1].commits_count == 1);
}

static void a_new_owner_does_not_wait_for_a_rank_that_has_left(void **state)
{
    start_recovering(3, 100);
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 7, .round = 5, .elements = 100});
    rig_settle(&rig);
    say_goodbye(1);
    rig_until(&rig, rig.workers[0].errors_count == 1);
    assert_int_equal(rig.workers[0].error.code, -EPIPE);
    assert_int_equal(rig.workers[0].error.word, 7);
    rig_say(&rig, 2, (struct say){.piece = 1, .word = 8, .round = 5, .elements = 100});
    rig_until(&rig, rig.workers[2].errors_count == 1);
}

/* One of the two ranks is wrong. The lane must not use the operation of either rank. */
static void ranks_that_hold_results_of_different_operations_do_no_harm(void **state)
{
    start_recovering(2, 100);
    rig_say(
        &rig, 0,
        (struct say){.piece = 1, .word = 3, .round = 5, .elements = 100, .standing = RECORD_HOLDS});
    rig_settle(&rig);
    rig_say(&rig, 1,
            (struct say){.piece = 1,
                         .word = 4,
                         .round = 5,
                         .elements = 100,
                         .operation = RECORD_GATHER,
                         .output_blocks = 2,
                         .standing = RECORD_HOLDS});
    for (uint32_t rank = 0; rank < 2; rank++) {
        const struct rig_worker *w = &rig.workers[rank];
        rig_until(&rig, w->commits_count + w->errors_count == 1);
    }
    rig_until(&rig, lane_is_quiet(rig.lane));
}

/* No rank has announced the round, so the round does not start, even if a set was chosen. */
static void a_standing_alone_starts_no_round(void **state)
{
    struct record_chosen chosen = {.kind = RECORD_CHOSEN, .round = 1, .ranks = {1}};
    struct lane_piece piece = {.id = 1,
                               .dtype = REDUCE_F32,
                               .elements = 100,
                               .tensor = "t",
                               .terms = {.quorum = QUORUM_CHOSEN, .bound = 1}};
    rig_start(&rig, kind);
    rig_place_piece(&rig, 2, piece, false);
    for (uint32_t rank = 0; rank < 2; rank++)
        rig_connect(&rig, rank, RIG_JOB, rank);
    rig_say(
        &rig, 0,
        (struct say){.piece = 1, .word = 3, .round = 1, .elements = 100, .standing = RECORD_HOLDS});
    assert_int_equal(fabric_send(rig.workers[0].conn, &chosen, sizeof chosen, NULL, 0), 0);
    rig_settle(&rig);
    assert_true(lane_is_quiet(rig.lane));
    assert_int_equal(rig.workers[0].words_count, 0);
}

static void start_recovering_terms(uint32_t workers, struct lane_terms terms)
{
    rig_start(&rig, kind);
    rig_place_piece(&rig, workers, (struct lane_piece){.id = 1, .elements = 100, .terms = terms},
                    true);
    for (uint32_t i = 0; i < workers; i++)
        rig_connect(&rig, i, RIG_JOB, i);
}

/* The running sum of this rank contains only the rank's own gradient. A copy of this sum would lose
 * the gradients of other ranks. */
static void the_running_sum_of_a_rank_is_no_result_for_others(void **state)
{
    start_recovering_terms(2, (struct lane_terms){.quorum = QUORUM_ANY});
    rig_landing(&rig, 0, 0)[7] = 1.0f;
    for (uint32_t rank = 0; rank < 2; rank++) {
        rig_input(&rig, rank, 0)[7] = (float)(rank + 1);
        rig_say(&rig, rank,
                (struct say){.piece = 1,
                             .word = 10 + rank,
                             .round = 1,
                             .elements = 100,
                             .standing = rank == 0 ? RECORD_HOLDS : RECORD_ANNOUNCE});
    }
    rig_until(&rig, rig.workers[0].commits_count == 1 && rig.workers[1].commits_count == 1);
    float sum = rig_landing(&rig, 1, 0)[7];
    /* the sum contains this rank's gradient, and perhaps an earlier gradient of the other rank */
    assert_true(sum == 2.0f || sum == 3.0f);
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 20, .round = 2, .elements = 100});
    rig_until(&rig, rig.workers[0].commits_count == 2);
    assert_true(rig_landing(&rig, 0, 0)[7] == 4.0f);
}

/* Round 3 had two ranks. The lane knows only one of them. */
static void too_few_ranks_with_the_last_round_are_an_error_not_a_standstill(void **state)
{
    start_recovering_terms(3, (struct lane_terms){.quorum = QUORUM_FIRST, .bound = 2});
    for (uint32_t rank = 0; rank < 3; rank++)
        rig_say(&rig, rank,
                (struct say){
                    .piece = 1, .word = 10 + rank, .round = rank == 0 ? 4 : 3, .elements = 100});
    for (uint32_t rank = 0; rank < 3; rank++) {
        rig_until(&rig, rig.workers[rank].errors_count == 1);
        assert_true(rig_says(&rig.workers[rank], -EOWNERDEAD,
                             "the result of round 3 was lost with its lane; declare again"));
    }
}

/* The former owner has died after it informed rank 1 alone (L80). Rank 2 speaks later. */
static void a_loss_that_one_rank_knows_is_an_error_for_all(void **state)
{
    start_recovering_terms(3, (struct lane_terms){.quorum = QUORUM_FIRST, .bound = 2});
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 10, .round = 4, .elements = 100});
    rig_settle(&rig);
    rig_say(&rig, 1,
            (struct say){.piece = 1,
                         .word = 11,
                         .round = 3,
                         .standing = RECORD_FAILED,
                         .has_no_input = true,
                         .has_no_output = true});
    rig_until(&rig, rig.workers[0].errors_count == 1);
    rig_say(&rig, 2, (struct say){.piece = 1, .word = 12, .round = 4, .elements = 100});
    rig_until(&rig, rig.workers[2].errors_count == 1);
    for (uint32_t rank = 0; rank < 3; rank += 2)
        assert_true(rig_says(&rig.workers[rank], -EOWNERDEAD,
                             "rank 1 knows of a result or state that was lost"));
    assert_int_equal(rig.workers[1].errors_count, 0);
}

static void a_loss_reported_under_an_old_route_means_nothing(void **state)
{
    start_recovering_terms(3, (struct lane_terms){.quorum = QUORUM_FIRST, .bound = 2});
    rig_say(&rig, 2,
            (struct say){.piece = 1,
                         .word = 12,
                         .round = 3,
                         .epoch = 7,
                         .standing = RECORD_FAILED,
                         .has_no_input = true,
                         .has_no_output = true});
    for (uint32_t rank = 0; rank < 3; rank++)
        rig_say(&rig, rank,
                (struct say){.piece = 1, .word = 10 + rank, .round = 1, .elements = 100});
    rig_until(&rig, rig.workers[0].commits_count == 1);
    assert_int_equal(rig.workers[0].errors_count, 0);
}

static void the_first_n_of_n_were_all_in_the_last_round(void **state)
{
    start_recovering_terms(2, (struct lane_terms){.quorum = QUORUM_FIRST, .bound = 2});
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 1, .round = 5, .elements = 100});
    rig_say(&rig, 1, (struct say){.piece = 1, .word = 2, .round = 6, .elements = 100});
    rig_until(&rig, rig.workers[0].commits_count == 1);
    rig_say(&rig, 0, (struct say){.piece = 1, .word = 3, .round = 6, .elements = 100});
    rig_until(&rig, rig.workers[0].commits_count == 2 && rig.workers[1].commits_count == 1);
}

#define CASE(name) cmocka_unit_test_teardown(name, stop)
static const struct CMUnitTest cases[] = {
    CASE(a_new_owner_sums_again_when_no_rank_has_the_result),
    CASE(a_new_owner_copies_a_result_that_a_rank_holds),
    CASE(a_new_owner_commits_a_round_that_a_rank_has_as_committed),
    CASE(the_running_sum_of_a_rank_is_no_result_for_others),
    CASE(too_few_ranks_with_the_last_round_are_an_error_not_a_standstill),
    CASE(a_loss_that_one_rank_knows_is_an_error_for_all),
    CASE(a_loss_reported_under_an_old_route_means_nothing),
    CASE(the_first_n_of_n_were_all_in_the_last_round),
    CASE(idle_workers_go_on_with_the_next_round_at_the_new_owner),
    CASE(a_round_that_all_ranks_hold_is_committed),
    CASE(a_worker_that_missed_the_commit_of_a_round_gets_it),
    CASE(a_worker_two_rounds_behind_is_an_error_not_a_wrong_sum),
    CASE(an_announcement_of_the_next_round_proves_no_commit_to_a_new_owner),
    CASE(a_new_owner_copies_a_result_that_a_rank_stores),
    CASE(a_round_whose_result_all_ranks_have_is_committed),
    CASE(a_rank_with_a_result_is_not_two_rounds_behind),
    CASE(a_result_is_kept_for_a_new_owner_only),
    CASE(a_new_owner_does_not_wait_for_a_rank_that_has_left),
    CASE(ranks_that_hold_results_of_different_operations_do_no_harm),
    CASE(a_standing_alone_starts_no_round),
};

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "shm";
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests_name(kind, cases, NULL, NULL);
}
