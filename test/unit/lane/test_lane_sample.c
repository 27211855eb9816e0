/* Tests sums over sampled gradients (A97). The sums of a small piece are exact, the sums of a large
 * piece are estimates. The lane sends the sums to the lowest rank of the set. All elements of a
 * rank's gradient have the same value, so the expected sums are known. The test acts as the leader
 * lane. */
#include "test/unit/lane/lane_rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define RANKS 10 /* number of ranks, more than the inputs of one pass */
#define ALL 0x3ffu
#define W 1
#define SMALL 5000 /* number of elements, which fill five blocks; the last block is short */
#define LARGE (400 * 1024)

static const char *kind;
static uint64_t elements;
static struct rig rig;
static const struct backup_terms automatic = {.rule = BACKUP_TERMS_AUTO};

static int stop(void **state)
{
    rig_stop(&rig);
    return 0;
}

static void place(uint32_t id, const struct backup_terms *terms)
{
    rig_place_piece(
        &rig, RANKS,
        (struct lane_piece){.id = id,
                            .elements = elements,
                            .terms = {.quorum = QUORUM_CHOSEN, .role = FOLLOWS_ROUNDS, .lag = 4},
                            .backup = terms},
        false);
}

static void start(bool is_small, const struct backup_terms *terms)
{
    elements = is_small ? SMALL : LARGE;
    rig_start(&rig, kind);
    place(W, terms);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        rig_connect(&rig, rank, RIG_JOB, rank);
    rig.count = RANKS;
}

static void choose(uint64_t round, uint64_t ranks)
{
    struct record_chosen chosen = {.kind = RECORD_CHOSEN, .round = round, .ranks = {ranks}};
    assert_int_equal(fabric_send(rig.workers[RANKS - 1].conn, &chosen, sizeof chosen, NULL, 0), 0);
}

/* Each element of the gradient of rank i is i + 1, times `factor`. */
static void push(uint32_t id, uint32_t rank, uint64_t round, float factor)
{
    for (uint64_t e = 0; e < elements; e++)
        rig_input(&rig, rank, 0)[e] = factor * (float)(rank + 1);
    rig_say(&rig, rank,
            (struct say){.piece = id,
                         .word = (uint32_t)round + 1000 * id,
                         .round = round,
                         .root = (uint32_t)round,
                         .elements = elements,
                         .operation = RECORD_MEAN});
}

static void round_of(uint64_t round, uint64_t ranks, float factor)
{
    choose(round, ranks);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (ranks >> rank & 1)
            push(W, rank, round, factor);
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        const struct rig_worker *w = &rig.workers[rank];
        if (ranks >> rank & 1)
            rig_until(&rig,
                      w->commits_count > 0 && w->commits[w->commits_count - 1] == round + 1000 * W);
    }
    rig_settle(&rig);
}

static const struct record_measure *sums_of(uint32_t rank, int count, uint64_t round)
{
    const struct rig_worker *w = &rig.workers[rank];
    rig_until(&rig, w->measures_count == count);
    assert_int_equal(w->measure.round, round);
    assert_int_equal(w->measure.lane, RIG_LANE);
    return &w->measure;
}

static bool is_about(double value, double expected, double part)
{
    return fabs(value - expected) <= part * fabs(expected);
}

static void the_sums_of_a_small_piece_are_exact(void **state)
{
    start(true, &automatic);
    round_of(1, ALL, 1);
    const struct record_measure *sums = sums_of(0, 1, 1);
    assert_int_equal(sums->inputs, RANKS);
    assert_int_equal(sums->blocks, 5);
    assert_true(sums->squares == 385.0 * SMALL);
    assert_true(sums->mean == 5.5 * 5.5 * SMALL);
    assert_true(isnan(sums->product));
    round_of(2, ALL, -2);
    sums = sums_of(0, 2, 2);
    assert_true(sums->squares == 4 * 385.0 * SMALL);
    assert_true(sums->mean == 11.0 * 11 * SMALL);
    assert_true(sums->product == -11 * 5.5 * SMALL);
}

static void the_sums_are_over_the_set_and_go_to_its_lowest_rank(void **state)
{
    start(true, &automatic);
    round_of(1, 1 << 2 | 1 << 4, 1);
    const struct record_measure *sums = sums_of(2, 1, 1);
    assert_int_equal(sums->inputs, 2);
    assert_true(sums->squares == (9.0 + 25) * SMALL && sums->mean == 16.0 * SMALL);
    assert_int_equal(rig.workers[0].measures_count + rig.workers[4].measures_count, 0);
}

static void a_large_piece_has_at_most_256_blocks_and_good_estimates(void **state)
{
    start(false, &automatic);
    round_of(1, 7, 1);
    round_of(2, 7, 1);
    const struct record_measure *sums = sums_of(0, 2, 2);
    assert_true(sums->blocks > 100 && sums->blocks <= RECORD_SAMPLE_BLOCKS);
    assert_true(is_about(sums->mean, 4.0 * LARGE, 0.25));
    assert_true(is_about(sums->squares, 3.5 * sums->mean, 1e-12));
    assert_true(is_about(sums->product, sums->mean, 1e-12));
}

static void the_sums_are_those_of_all_pieces_of_the_lane(void **state)
{
    start(true, &automatic);
    place(W + 1, &automatic);
    choose(1, 1);
    push(W, 0, 1, 1);
    rig_until(&rig, rig.workers[0].commits_count == 1);
    assert_int_equal(rig.workers[0].measures_count, 0);
    push(W + 1, 0, 1, 3);
    const struct record_measure *sums = sums_of(0, 1, 1);
    assert_int_equal(sums->blocks, 10);
    assert_true(sums->squares == (1.0 + 9) * SMALL);
    assert_true(sums->mean == sums->squares);
}

static void infinite_gradients_have_no_finite_sums(void **state)
{
    start(true, &automatic);
    round_of(1, 3, INFINITY);
    assert_false(isfinite(sums_of(0, 1, 1)->squares));
}

static void other_rules_take_no_sample(void **state)
{
    const struct backup_terms blind = {.rule = BACKUP_TERMS_BLIND};
    start(true, &blind);
    round_of(1, 3, 1);
    round_of(2, 3, 1);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        assert_int_equal(rig.workers[rank].measures_count, 0);
}

#define test(name) cmocka_unit_test_teardown(name, stop)

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "shm";
    const struct CMUnitTest tests[] = {
        test(the_sums_of_a_small_piece_are_exact),
        test(the_sums_are_over_the_set_and_go_to_its_lowest_rank),
        test(a_large_piece_has_at_most_256_blocks_and_good_estimates),
        test(the_sums_are_those_of_all_pieces_of_the_lane),
        test(infinite_gradients_have_no_finite_sums),
        test(other_rules_take_no_sample),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
