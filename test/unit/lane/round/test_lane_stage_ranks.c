/* Tests stages of a fixed job on a lane: the ranks of a piece change between two rounds, all ranks
 * stay connected, and parameters and moments stay (A41 of svc/lane, K174 of svc/coordinator). */
#include "svc/lane/move/regroup.h"
#include "svc/lane/move/release.h"
#include "test/unit/lane/lane_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ELEMENTS 1000
#define RANKS 3
#define ALL 7u

static const char *kind;
static struct rig rig;
static struct lane_piece spec;
static uint64_t set[RECORD_MISSING_WORDS];
static uint32_t epoch;
static const uint32_t piece = 1;

static int stop(void **state)
{
    rig_stop(&rig);
    return 0;
}

static uint32_t word_of(uint64_t round) { return epoch * 1000 + (uint32_t)round; }

static void say(uint32_t rank, uint64_t round, uint8_t operation, uint8_t standing)
{
    bool is_idle = standing == RECORD_IDLE, is_set = operation == RECORD_BROADCAST;
    rig_say(&rig, rank,
            (struct say){.piece = piece,
                         .word = word_of(round),
                         .round = round,
                         .elements = is_idle ? 0 : ELEMENTS,
                         .operation = operation,
                         .standing = standing,
                         .epoch = epoch,
                         .has_no_input = is_idle || (is_set && rank > 0),
                         .has_no_output = is_idle || (is_set && rank == 0)});
}

static void tell_settings(uint32_t rank)
{
    const struct record_settings record = {.kind = RECORD_SETTINGS, .rate = 0.5, .momentum = 0.5};
    assert_int_equal(fabric_send(rig.workers[rank].conn, &record, sizeof record, NULL, 0), 0);
}

static void expect_commit(uint32_t rank, uint64_t round)
{
    const struct rig_worker *w = &rig.workers[rank];
    rig_until(&rig, w->commits_count > 0 && w->commits[w->commits_count - 1] == word_of(round));
    assert_int_equal(w->errors_count, 0);
}

static void do_round(uint64_t round, uint64_t ranks, uint8_t operation, float input, float result)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        for (uint64_t e = 0; e < ELEMENTS; e++)
            rig_input(&rig, rank, 0)[e] = input;
        if (ranks >> rank & 1)
            say(rank, round, operation, RECORD_ANNOUNCE);
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (!(ranks >> rank & 1))
            continue;
        expect_commit(rank, round);
        for (uint64_t e = 0; e < ELEMENTS && (rank > 0 || operation == RECORD_UPDATE); e++)
            assert_true(rig_landing(&rig, rank, 0)[e] == result);
    }
}

/* Starts a fixed job with an update rule. Rank 0 sets the parameters, then all ranks make a step:
 * the moment is 20, the parameters are 90. */
static void start(void)
{
    spec = (struct lane_piece){.id = piece,
                               .dtype = REDUCE_F32,
                               .elements = ELEMENTS,
                               .tensor = "w",
                               .ranks = NULL,
                               .terms = {.rule = UPDATE_MOMENTUM}};
    epoch = 1;
    rig_start(&rig, kind);
    rig_place_piece(&rig, RANKS, spec, false);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        rig_connect(&rig, rank, RIG_JOB, rank);
    rig.count = RANKS;
    for (uint32_t rank = 0; rank < RANKS; rank++)
        tell_settings(rank);
    do_round(1, ALL, RECORD_BROADCAST, 100, 100);
    do_round(2, ALL, RECORD_UPDATE, 20, 90);
}

/* The border to the next stage. All members know the last committed round. */
static void border(uint64_t ranks, uint64_t round)
{
    static const uint64_t nobody[RECORD_MISSING_WORDS];
    assert_int_equal(lane_release(rig.lane, RIG_JOB, &piece, 1), 0);
    lane_let_go(rig.lane, RIG_JOB, nobody);
    rig_until(&rig, lane_rested(rig.lane, RIG_JOB, &piece, 1) == 1);
    set[0] = ranks;
    spec.ranks = set;
    assert_int_equal(lane_regroup(rig.lane, RIG_JOB, ++epoch, &spec, 1), 0);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        if (ranks >> rank & 1)
            say(rank, round, RECORD_UPDATE, RECORD_IDLE);
}

static void parameters_and_moments_stay_when_all_ranks_change(void **state)
{
    start();
    border(4, 2);
    do_round(3, 4, RECORD_UPDATE, 20, 75); /* moment 30 */
    border(1, 3);                          /* no rank of the former stage */
    do_round(4, 1, RECORD_UPDATE, 1, 67);  /* moment 16 */
    border(ALL, 4);
    do_round(5, ALL, RECORD_UPDATE, 2, 62); /* moment 10 */
}

/* The parameters have round 2. A new round 2 would replace this update without an error. */
static void a_border_repeats_no_round(void **state)
{
    start();
    border(4, 1);
    say(2, 2, RECORD_UPDATE, RECORD_ANNOUNCE);
    rig_until(&rig, rig.workers[2].errors_count > 0);
    assert_int_equal(rig.workers[2].error.code, -EOWNERDEAD);
}

static void an_idle_rank_is_refused_and_changes_nothing(void **state)
{
    start();
    border(6, 2);
    say(0, 3, RECORD_UPDATE, RECORD_ANNOUNCE);
    rig_until(&rig, rig.workers[0].errors_count == 1);
    assert_int_equal(rig.workers[0].error.code, -EINVAL);
    do_round(3, 6, RECORD_UPDATE, 20, 75);
}

static void a_member_without_its_route_is_refused(void **state)
{
    start();
    border(3, 2);
    epoch--;
    say(0, 3, RECORD_UPDATE, RECORD_ANNOUNCE);
    rig_until(&rig, rig.workers[0].errors_count == 1);
    assert_int_equal(rig.workers[0].error.code, -ESTALE);
}

#define CASE(test) cmocka_unit_test_teardown(test, stop)

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "shm";
    const struct CMUnitTest tests[] = {
        CASE(parameters_and_moments_stay_when_all_ranks_change),
        CASE(a_border_repeats_no_round),
        CASE(an_idle_rank_is_refused_and_changes_nothing),
        CASE(a_member_without_its_route_is_refused),
    };
    return cmocka_run_group_tests_name(kind, tests, NULL, NULL);
}
