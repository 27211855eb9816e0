/* Tests the weights of gradients between a lane and workers: the bits of a weighted mean, inputs of
 * weight 0, and updates. */
#include "svc/reduce/reduce.h"
#include "svc/reduce/update.h"
#include "test/unit/lane/lane_rig.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define RANKS_MOST 11 /* two passes */
#define LONG 150000   /* several chunks */
#define UPDATED 2     /* number of a piece with an update rule */

static const char *kind;
static struct rig rig;

static int stop(void **state)
{
    rig_stop(&rig);
    return 0;
}

static float value(uint32_t rank, uint64_t e)
{
    uint32_t x = (uint32_t)(e * 2654435761u ^ (rank + 1) * 97u);
    x ^= x >> 15;
    x *= 0x2c1b3c6du;
    return (float)(x >> 8) * 0x1p-23f - 1.0f;
}

static void fill(uint32_t ranks, uint64_t elements)
{
    for (uint32_t rank = 0; rank < ranks; rank++)
        for (uint64_t e = 0; e < elements; e++)
            rig_input(&rig, rank, 0)[e] = value(rank, e);
}

static void push(uint32_t rank, uint32_t piece, uint64_t round, uint8_t operation,
                 uint64_t elements, uint32_t weight)
{
    rig_say(&rig, rank,
            (struct say){.piece = piece,
                         .word = 100 + rank,
                         .round = round,
                         .elements = elements,
                         .operation = operation,
                         .weight = weight,
                         .has_no_weight = weight == 0});
}

static void await(uint32_t ranks, int commits)
{
    for (uint32_t rank = 0; rank < ranks; rank++) {
        rig_until(&rig, rig.workers[rank].commits_count == commits);
        assert_int_equal(rig.workers[rank].errors_count, 0);
    }
}

/* Computes a weighted mean. `volatile` prevents fused multiplication and addition, so each product
 * and each sum is rounded once. */
static float mean(const uint32_t *weights, uint32_t ranks, uint64_t e)
{
    volatile float sum = 0, product;
    uint32_t divisor = 0;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        if (weights[rank] == 0)
            continue;
        product = (float)weights[rank] * value(rank, e);
        sum = divisor == 0 ? product : sum + product;
        divisor += weights[rank];
    }
    return divisor ? sum / (float)divisor : 0;
}

static void expect(uint32_t ranks, const uint32_t *weights, uint64_t elements)
{
    for (uint64_t e = 0; e < elements; e++) {
        float want = mean(weights, ranks, e);
        for (uint32_t rank = 0; rank < ranks; rank++) {
            float got = rig_landing(&rig, rank, 0)[e];
            if (memcmp(&got, &want, sizeof got) != 0)
                fail_msg("rank %u element %llu: %a, not %a", rank, (unsigned long long)e,
                         (double)got, (double)want);
        }
    }
}

static void take_mean(uint32_t ranks, uint64_t round, uint64_t elements, const uint32_t *weights)
{
    for (uint32_t rank = 0; rank < ranks; rank++)
        push(rank, 1, round, RECORD_MEAN, elements, weights[rank]);
    await(ranks, (int)round);
}

static void a_weighted_mean_has_the_bits_of_its_formula(void **state)
{
    static const uint32_t weights[RANKS_MOST] = {3, 1, 2, 7, 1, 5, 64, 3, 9, 1, 128};
    static const struct {
        uint32_t ranks;
        uint64_t elements;
    } cases[] = {{2, 1000}, {3, LONG}, {RANKS_MOST, 1000}, {RANKS_MOST, LONG}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_start_job(&rig, kind, cases[i].ranks, 1, cases[i].elements);
        fill(cases[i].ranks, cases[i].elements);
        take_mean(cases[i].ranks, 1, cases[i].elements, weights);
        expect(cases[i].ranks, weights, cases[i].elements);
        if (i < 3)
            rig_stop(&rig);
    }
}

static void only_the_ratio_of_the_weights_counts(void **state)
{
    static const uint32_t large[] = {192, 64, 128}, small[] = {3, 1, 2};
    rig_start_job(&rig, kind, 3, 1, 1000);
    fill(3, 1000);
    take_mean(3, 1, 1000, large);
    expect(3, small, 1000);
}

static void equal_weights_keep_the_bits(void **state)
{
    static const uint32_t most[] = {RECORD_WEIGHT_MAX, RECORD_WEIGHT_MAX, RECORD_WEIGHT_MAX};
    static const uint32_t ones[] = {1, 1, 1};
    rig_start_job(&rig, kind, 3, 1, LONG);
    fill(3, LONG);
    take_mean(3, 1, LONG, most);
    expect(3, ones, LONG);
}

static void an_input_of_weight_0_is_not_read(void **state)
{
    static const uint32_t weights[] = {0, 3, 1};
    rig_start_job(&rig, kind, 3, 1, LONG);
    fill(3, LONG);
    for (uint64_t e = 0; e < LONG; e++)
        rig_input(&rig, 0, 0)[e] = NAN;
    take_mean(3, 1, LONG, weights);
    expect(3, weights, LONG);
}

static void one_input_alone_keeps_its_bits(void **state)
{
    static const uint32_t weights[] = {0, 7, 0};
    rig_start_job(&rig, kind, 3, 1, 1000);
    fill(3, 1000);
    take_mean(3, 1, 1000, weights);
    for (uint64_t e = 0; e < 1000; e++)
        assert_memory_equal(&rig_landing(&rig, 2, 0)[e], &rig_input(&rig, 1, 0)[e], sizeof(float));
}

static void a_mean_of_no_input_is_0_and_the_next_round_has_its_own_weights(void **state)
{
    static const uint32_t none[] = {0, 0, 0}, some[] = {2, 0, 5};
    rig_start_job(&rig, kind, 3, 1, LONG);
    fill(3, LONG);
    for (uint32_t rank = 0; rank < 3; rank++)
        memset(rig_landing(&rig, rank, 0), 0xa5, LONG * sizeof(float));
    take_mean(3, 1, LONG, none);
    expect(3, none, LONG);
    take_mean(3, 2, LONG, some);
    expect(3, some, LONG);
}

static void a_new_owner_repeats_the_round_with_its_weights(void **state)
{
    static const uint32_t weights[] = {5, 0, 2};
    rig_start(&rig, kind);
    rig_place(&rig, RIG_JOB, 3, 1, 1, 1000, true);
    for (uint32_t rank = 0; rank < 3; rank++)
        rig_connect(&rig, rank, RIG_JOB, rank);
    rig.count = 3;
    fill(3, 1000);
    for (uint32_t rank = 0; rank < 3; rank++)
        push(rank, 1, 4, RECORD_MEAN, 1000, weights[rank]);
    await(3, 1);
    expect(3, weights, 1000);
}

/* ---- updates ---- */

static float kept[RANKS_MOST][LONG];

static void start_updates(bool measures)
{
    static const struct record_settings settings = {
        .kind = RECORD_SETTINGS, .rate = 0.125, .beta1 = 0.5, .beta2 = 0.5, .epsilon = 1e-8};
    rig_start_job(&rig, kind, 2, 1, 10);
    rig_place_piece(&rig, 2,
                    (struct lane_piece){.id = UPDATED,
                                        .dtype = REDUCE_F32,
                                        .elements = 1000,
                                        .terms = {.rule = UPDATE_ADAM, .measures = measures}},
                    false);
    assert_int_equal(fabric_send(rig.workers[0].conn, &settings, sizeof settings, NULL, 0), 0);
    for (uint64_t e = 0; e < 1000; e++)
        rig_input(&rig, 0, 0)[e] = 1;
    for (uint32_t rank = 0; rank < 2; rank++)
        rig_say(&rig, rank,
                (struct say){.piece = UPDATED,
                             .word = 100 + rank,
                             .round = 1,
                             .elements = 1000,
                             .operation = RECORD_BROADCAST,
                             .has_no_input = rank > 0,
                             .has_no_output = rank == 0});
    await(2, 1);
    fill(2, 1000);
}

static void update(uint64_t round, uint32_t first, uint32_t second)
{
    push(0, UPDATED, round, RECORD_UPDATE, 1000, first);
    push(1, UPDATED, round, RECORD_UPDATE, 1000, second);
    await(2, (int)round);
}

static void keep_parameters(uint32_t place)
{
    memcpy(kept[place], rig_landing(&rig, 1, 0), 1000 * sizeof(float));
}

/* The test computes each weighted mean itself. An update with this mean as its only input must give
 * the same bits as the weighted update. */
static void expect_weighted_updates(bool measures)
{
    static const uint32_t weights[] = {3, 1};
    start_updates(measures);
    update(2, 3, 1);
    update(3, 3, 1);
    keep_parameters(0);
    rig_stop(&rig);
    start_updates(false);
    for (uint64_t e = 0; e < 1000; e++)
        rig_input(&rig, 1, 0)[e] = mean(weights, 2, e);
    update(2, 0, 1);
    update(3, 0, 1);
    keep_parameters(1);
    assert_memory_equal(kept[0], kept[1], 1000 * sizeof(float));
}

static void an_update_with_weights_is_that_of_the_weighted_mean(void **state)
{
    expect_weighted_updates(false);
}

static void a_measured_update_with_weights_has_the_same_bits(void **state)
{
    expect_weighted_updates(true);
}

static void an_update_without_gradients_keeps_parameters_and_moments(void **state)
{
    start_updates(false);
    update(2, 0, 0);
    for (uint64_t e = 0; e < 1000; e++)
        assert_true(rig_landing(&rig, 0, 0)[e] == 1);
    update(3, 1, 1);
    keep_parameters(0);
    update(4, 0, 0);
    keep_parameters(1);
    assert_memory_equal(kept[0], kept[1], 1000 * sizeof(float));
    update(5, 1, 1);
    keep_parameters(0);
    assert_true(memcmp(kept[0], kept[1], 1000 * sizeof(float)) != 0);
    /* the second update has read the moments of the first update */
    assert_true(isfinite(kept[0][999]));
}

/* ---- refusals ---- */

static void a_weight_that_no_rank_may_have_ends_the_connection(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 10);
    push(0, 1, 1, RECORD_MEAN, 10, RECORD_WEIGHT_MAX + 1);
    rig_until(&rig, rig.workers[0].is_closed);
    rig_stop(&rig);
    rig_start_job(&rig, kind, 2, 1, 10);
    push(1, 1, 1, RECORD_SUM, 10, 2); /* a sum accepts no weights */
    rig_until(&rig, rig.workers[1].is_closed);
}

static void a_piece_that_follows_the_sets_of_a_job_has_no_weights(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 10);
    rig_place_piece(
        &rig, 2,
        (struct lane_piece){
            .id = UPDATED,
            .dtype = REDUCE_F32,
            .elements = 10,
            .terms = {.rule = UPDATE_SGD, .quorum = QUORUM_CHOSEN, .role = FOLLOWS_ROUNDS}},
        false);
    push(0, UPDATED, 1, RECORD_UPDATE, 10, 2);
    rig_until(&rig, rig.workers[0].errors_count == 1);
    assert_true(rig_says(
        &rig.workers[0], -EOPNOTSUPP,
        "gradients have no weights in jobs with backup workers; leave gp_job_weigh() out"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_weighted_mean_has_the_bits_of_its_formula, stop),
        cmocka_unit_test_teardown(only_the_ratio_of_the_weights_counts, stop),
        cmocka_unit_test_teardown(equal_weights_keep_the_bits, stop),
        cmocka_unit_test_teardown(an_input_of_weight_0_is_not_read, stop),
        cmocka_unit_test_teardown(one_input_alone_keeps_its_bits, stop),
        cmocka_unit_test_teardown(a_mean_of_no_input_is_0_and_the_next_round_has_its_own_weights,
                                  stop),
        cmocka_unit_test_teardown(a_new_owner_repeats_the_round_with_its_weights, stop),
        cmocka_unit_test_teardown(an_update_with_weights_is_that_of_the_weighted_mean, stop),
        cmocka_unit_test_teardown(a_measured_update_with_weights_has_the_same_bits, stop),
        cmocka_unit_test_teardown(an_update_without_gradients_keeps_parameters_and_moments, stop),
        cmocka_unit_test_teardown(a_weight_that_no_rank_may_have_ends_the_connection, stop),
        cmocka_unit_test_teardown(a_piece_that_follows_the_sets_of_a_job_has_no_weights, stop),
    };
    kind = argc > 1 ? argv[1] : "shm";
    return cmocka_run_group_tests_name(kind, tests, NULL, NULL);
}
