/* Tests rounds that a rank reported when it left an elastic job (A44 of svc/lane): if a remaining
 * rank announces such a round again, the rank keeps the result. */
#include "svc/lane/move/regroup.h"
#include "svc/lane/move/release.h"
#include "test/unit/lane/lane_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ELEMENTS 1000
#define RANKS 3

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

static void start(unsigned rule)
{
    set[0] = 7;
    spec = (struct lane_piece){.id = piece,
                               .dtype = REDUCE_F32,
                               .elements = ELEMENTS,
                               .tensor = "w",
                               .terms = {.rule = rule},
                               .ranks = set};
    epoch = 1;
    rig_start(&rig, kind);
    rig_place_piece(&rig, RANKS, spec, false);
    lane_set_elastic(rig.lane, RIG_JOB);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        rig_connect(&rig, rank, RIG_JOB, rank);
    rig.count = RANKS;
}

static uint32_t word_of(uint64_t round) { return epoch * 1000 + (uint32_t)round; }

static void announce(uint32_t rank, uint64_t round, uint8_t operation, float value)
{
    bool is_taken = operation == RECORD_BROADCAST && rank > 0;
    for (uint64_t e = 0; e < ELEMENTS; e++)
        rig_input(&rig, rank, 0)[e] = value;
    rig_say(&rig, rank,
            (struct say){.piece = piece,
                         .word = word_of(round),
                         .round = round,
                         .elements = ELEMENTS,
                         .operation = operation,
                         .standing = RECORD_ANNOUNCE,
                         .epoch = epoch,
                         .has_no_input = is_taken,
                         .has_no_output = operation == RECORD_BROADCAST && rank == 0});
}

static void expect(uint32_t rank, uint64_t round, float value)
{
    const struct rig_worker *w = &rig.workers[rank];
    rig_until(&rig, w->commits_count > 0 && w->commits[w->commits_count - 1] == word_of(round));
    assert_int_equal(w->errors_count, 0);
    for (uint64_t e = 0; e < ELEMENTS; e++)
        assert_true(rig_landing(&rig, rank, 0)[e] == value);
}

/* Ranks 0 to `count` - 1 announce the round with `value`, and get `result`. */
static void do_round(uint64_t round, uint8_t operation, uint32_t count, float value, float result)
{
    for (uint32_t rank = 0; rank < count; rank++)
        announce(rank, round, operation, value);
    for (uint32_t rank = 0; rank < count; rank++)
        expect(rank, round, result);
}

/* The last ranks leave, and `count` ranks remain. One of the leaving ranks has reported the round
 * `committed`. */
static void leave(uint32_t count, uint64_t committed)
{
    const uint64_t gone[RECORD_MISSING_WORDS] = {set[0] & ~((1u << count) - 1)};
    assert_int_equal(lane_release(rig.lane, RIG_JOB, &piece, 1), 0);
    lane_let_go(rig.lane, RIG_JOB, gone);
    rig_until(&rig, lane_rested(rig.lane, RIG_JOB, &piece, 1) == 1);
    set[0] = (1u << count) - 1;
    spec.committed = committed;
    assert_int_equal(lane_regroup(rig.lane, RIG_JOB, ++epoch, &spec, 1), 0);
}

static void a_sum_reported_by_a_leaving_rank_is_not_repeated(void **state)
{
    start(0);
    do_round(1, RECORD_SUM, 3, 2, 6);
    leave(2, 1);
    do_round(1, RECORD_SUM, 2, 10, 6); /* no remaining rank has received its COMMIT */
    do_round(2, RECORD_SUM, 2, 1, 2);
}

static void a_reported_round_counts_in_later_changes_of_ranks(void **state)
{
    start(0);
    do_round(1, RECORD_SUM, 3, 2, 6);
    leave(2, 1);
    leave(1, 1);
    do_round(1, RECORD_SUM, 1, 10, 6);
    do_round(2, RECORD_SUM, 1, 1, 1);
}

static void a_report_of_another_round_has_no_effect(void **state)
{
    start(0);
    do_round(1, RECORD_SUM, 3, 2, 6);
    do_round(2, RECORD_SUM, 3, 1, 3);
    leave(2, 1);
    do_round(3, RECORD_SUM, 2, 1, 2);
    leave(1, UINT64_MAX);
    do_round(4, RECORD_SUM, 1, 5, 5);
}

static void a_step_reported_by_a_leaving_rank_is_not_undone(void **state)
{
    const struct record_settings settings = {.kind = RECORD_SETTINGS, .rate = 0.5};
    start(UPDATE_SGD);
    assert_int_equal(fabric_send(rig.workers[0].conn, &settings, sizeof settings, NULL, 0), 0);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        announce(rank, 1, RECORD_BROADCAST, 100);
    for (uint32_t rank = 1; rank < RANKS; rank++)
        expect(rank, 1, 100);
    do_round(2, RECORD_UPDATE, 3, 20, 90);
    leave(2, 2);
    do_round(2, RECORD_UPDATE, 2, 40, 90);
    do_round(3, RECORD_UPDATE, 2, 20, 80);
}

#define CASE(test) cmocka_unit_test_teardown(test, stop)

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "shm";
    const struct CMUnitTest tests[] = {
        CASE(a_sum_reported_by_a_leaving_rank_is_not_repeated),
        CASE(a_reported_round_counts_in_later_changes_of_ranks),
        CASE(a_report_of_another_round_has_no_effect),
        CASE(a_step_reported_by_a_leaving_rank_is_not_undone),
    };
    return cmocka_run_group_tests_name(kind, tests, NULL, NULL);
}
