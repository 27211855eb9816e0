/* Tests pieces with an update rule (README of svc/lane, A19; svc/wire, W14). The lane stores
 * parameters and moments, rank 0 sends the settings, and every rank receives the new parameters.
 * The reference of this test is the kernels, which test_update tests. */
#include "test/unit/lane/update_rig.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- results of an update ---- */

static void follow(uint32_t ranks, enum update_rule rule, bool measures)
{
    start_rule(ranks, (struct lane_terms){.rule = rule, .measures = measures}, false);
    tell(0, &usual);
    set(1);
    model_set();
    expect_model(1);
    for (uint64_t round = 2; round <= 4; round++) {
        update_all(round);
        model_update(rule, round, &usual);
        expect_model(0);
    }
}

static void every_rule_gives_all_ranks_the_parameters_of_its_formula(void **state)
{
    for (enum update_rule rule = UPDATE_SGD; rule < UPDATE_RULES; rule++) {
        follow(3, rule, false);
        if (rule < UPDATE_RULES - 1)
            rig_stop(&rig);
    }
}

static void one_worker_alone_gets_updates(void **state) { follow(1, UPDATE_ADAM, false); }

static void more_workers_than_a_pass_takes_update_to_the_same_bits(void **state)
{
    follow(10, UPDATE_ADAMW, false);
}

static void the_squares_are_those_of_gradients_and_mean_not_of_parameters(void **state)
{
    double squares = 0, inputs = 0;
    follow(2, UPDATE_MOMENTUM, true);
    model_mean(4);
    for (uint64_t e = 0; e < ELEMENTS; e++) {
        squares += (double)mean[e] * mean[e];
        for (uint32_t rank = 0; rank < 2; rank++)
            inputs += (double)gradient(rank, 4, e) * gradient(rank, 4, e);
    }
    const struct lane_squares found = rig_use(&rig).squares;
    assert_int_equal(found.round, 4);
    assert_true(fabs(found.result_squares - squares) < 1e-9 * squares);
    assert_true(fabs(found.input_squares - inputs) < 1e-9 * inputs);
}

static void settings_are_the_first_rank_s_and_of_that_round(void **state)
{
    const struct update_settings fast = {.rate = 1}, slow = {.rate = 0.001};
    start(2, UPDATE_SGD);
    tell(0, &slow);
    tell(1, &fast); /* settings of another rank have no effect */
    set(1);
    update(0, 2);
    tell(0, &fast);
    /* rank 0 announces round 3 before rank 1 announces round 2, with the input of round 2 */
    say(0, 3, RECORD_UPDATE, RECORD_ANNOUNCE);
    rig_settle(&rig);
    update(1, 2);
    rig_until(&rig, rig.workers[0].words_count == 2 && rig.workers[1].commits_count == 2);
    model_set();
    model_update(UPDATE_SGD, 2, &slow);
    expect_model(0);
}

static void parameters_set_again_count_steps_from_one(void **state)
{
    start(2, UPDATE_ADAM);
    tell(0, &usual);
    set(1);
    update_all(2);
    set(3);
    update_all(4);
    model_set();
    model_update(UPDATE_ADAM, 4, &usual);
    expect_model(0);
}

static void nan_and_infinity_reach_the_parameters(void **state)
{
    start(2, UPDATE_SGD);
    tell(0, &usual);
    set(1);
    for (uint32_t rank = 0; rank < 2; rank++)
        memset(rig_input(&rig, rank, 0), 0, BYTES);
    rig_input(&rig, 1, 0)[5] = NAN;
    rig_input(&rig, 0, 0)[70000 / TRANSFER_SHORTER] = -INFINITY;
    for (uint32_t rank = 0; rank < 2; rank++)
        say(rank, 2, RECORD_UPDATE, RECORD_ANNOUNCE);
    await_commit(2);
    assert_true(isnan(rig_landing(&rig, 0, 0)[5]));
    assert_true(isinf(rig_landing(&rig, 1, 0)[70000 / TRANSFER_SHORTER]) &&
                rig_landing(&rig, 1, 0)[70000 / TRANSFER_SHORTER] > 0);
    assert_true(isfinite(rig_landing(&rig, 0, 0)[6]));
}

static void state_is_counted_to_the_job_and_given_back(void **state)
{
    start(1, UPDATE_ADAM);
    assert_true(rig_use(&rig).heap_bytes >= 6 * BYTES);
    uint32_t piece = W;
    uint64_t before = rig_use(&rig).heap_bytes;
    lane_drop(rig.lane, RIG_JOB, &piece, 1);
    assert_true(rig_use(&rig).heap_bytes <= before - 6 * BYTES);
}

static void parameters_that_do_not_fit_are_refused_and_the_others_go_on(void **state)
{
    struct lane_piece piece = {.id = 9,
                               .elements = ELEMENTS,
                               .dtype = REDUCE_F32,
                               .tensor = "x",
                               .terms = {.rule = UPDATE_ADAM}};
    start(2, UPDATE_SGD);
    tell(0, &usual);
    set(1);
    uint64_t held = rig_use(&rig).heap_bytes;
    lane_set_memory_limit(rig.lane, held + 5 * BYTES);
    assert_int_equal(lane_place(rig.lane, RIG_JOB, "job", 2, 1, false, &piece, 1), -ENOSPC);
    assert_int_equal(rig_use(&rig).heap_bytes, held);
    update_all(2);
    model_set();
    model_update(UPDATE_SGD, 2, &usual);
    expect_model(0);
}

/* ---- refusals ---- */

static void an_update_before_any_parameters_is_an_error_on_every_rank(void **state)
{
    start(2, UPDATE_SGD);
    tell(0, &usual);
    update(0, 1);
    update(1, 1);
    expect_error(0, -ENODATA, "declare and broadcast it");
    expect_error(1, -ENODATA, "declare and broadcast it");
}

static void a_sum_of_parameters_is_refused(void **state)
{
    start(1, UPDATE_SGD);
    say(0, 1, RECORD_SUM, RECORD_ANNOUNCE);
    expect_error(0, -EOPNOTSUPP, "sum is not defined");
}

static void an_update_without_a_rule_is_refused(void **state)
{
    rig_start_job(&rig, kind, 1, 1, ELEMENTS);
    say(0, 1, RECORD_UPDATE, RECORD_ANNOUNCE);
    expect_error(0, -EOPNOTSUPP, "update is not defined");
}

static void settings_without_sense_are_named(void **state)
{
    struct update_settings wrong = usual;
    wrong.beta2 = NAN;
    start(1, UPDATE_ADAM);
    set(1);
    tell(0, &wrong);
    update(0, 2);
    expect_error(0, -EINVAL, "beta2");
}

static void rules_that_no_lane_can_keep_are_refused(void **state)
{
    static const struct lane_piece wrong[] = {
        {.id = 9, .elements = 1, .dtype = REDUCE_F16, .terms = {.rule = UPDATE_SGD}},
        {.id = 9, .elements = 1, .dtype = REDUCE_F32, .terms = {.rule = UPDATE_RULES}},
        {.id = 9,
         .elements = 1,
         .dtype = REDUCE_F32,
         .terms = {.rule = UPDATE_SGD, .quorum = QUORUM_ANY}},
    };
    start(1, UPDATE_SGD);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct lane_piece piece = wrong[i];
        piece.tensor = "x";
        assert_int_equal(lane_place(rig.lane, RIG_JOB, "job", 1, 1, false, &piece, 1), -EINVAL);
    }
}

/* ---- a new owner ---- */

static void parameters_lost_with_their_lane_are_an_error_on_every_rank(void **state)
{
    recover(2, UPDATE_ADAM);
    say(0, 3, RECORD_UPDATE, RECORD_HOLDS);
    update(1, 3);
    expect_error(0, -EOWNERDEAD, "moments died with the lane");
    expect_error(1, -EOWNERDEAD, "restore a snapshot");
}

static void a_rank_without_an_open_round_learns_of_the_loss_with_its_next_update(void **state)
{
    recover(2, UPDATE_SGD);
    say(0, 3, RECORD_UPDATE, RECORD_IDLE);
    say(1, 3, RECORD_UPDATE, RECORD_IDLE);
    rig_settle(&rig);
    assert_int_equal(rig.workers[0].errors_count + rig.workers[1].errors_count, 0);
    update(1, 4);
    expect_error(1, -EOWNERDEAD, "died with the lane");
}

static void the_first_broadcast_is_repeated_so_that_the_lane_has_the_parameters(void **state)
{
    recover(2, UPDATE_SGD);
    for (uint64_t e = 0; e < ELEMENTS; e++)
        rig_input(&rig, 0, 0)[e] = parameter(e);
    say(1, 1, RECORD_BROADCAST, RECORD_HOLDS);
    say(0, 1, RECORD_BROADCAST, RECORD_ANNOUNCE);
    await_commit(1);
    update_all(2);
    model_set();
    model_update(UPDATE_SGD, 2, &usual);
    expect_model(0);
}

/* The rank already has the result in its landing area (W4), so the loss of the state affects only
 * later rounds. */
static void a_rank_gets_a_missed_commit_before_the_loss(void **state)
{
    start_rule(2, (struct lane_terms){.rule = UPDATE_SGD}, true);
    tell(0, &usual);
    say(0, 3, RECORD_UPDATE, RECORD_IDLE);
    say(1, 3, RECORD_UPDATE, RECORD_ANNOUNCE);
    rig_until(&rig, rig.workers[1].commits_count == 1);
    assert_int_equal(rig.workers[1].errors_count, 0);
    for (uint32_t rank = 0; rank < 2; rank++) {
        say(rank, 4, RECORD_UPDATE, RECORD_ANNOUNCE);
        rig_until(&rig, rig.workers[rank].errors_count == 1);
        assert_int_equal(rig.workers[rank].error.code, -EOWNERDEAD);
    }
}

#define CASE(name) cmocka_unit_test_teardown(name, stop)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CASE(every_rule_gives_all_ranks_the_parameters_of_its_formula),
        CASE(one_worker_alone_gets_updates),
        CASE(a_rank_gets_a_missed_commit_before_the_loss),
        CASE(more_workers_than_a_pass_takes_update_to_the_same_bits),
        CASE(the_squares_are_those_of_gradients_and_mean_not_of_parameters),
        CASE(settings_are_the_first_rank_s_and_of_that_round),
        CASE(parameters_set_again_count_steps_from_one),
        CASE(nan_and_infinity_reach_the_parameters),
        CASE(state_is_counted_to_the_job_and_given_back),
        CASE(parameters_that_do_not_fit_are_refused_and_the_others_go_on),
        CASE(an_update_before_any_parameters_is_an_error_on_every_rank),
        CASE(a_sum_of_parameters_is_refused),
        CASE(an_update_without_a_rule_is_refused),
        CASE(settings_without_sense_are_named),
        CASE(rules_that_no_lane_can_keep_are_refused),
        CASE(parameters_lost_with_their_lane_are_an_error_on_every_rank),
        CASE(a_rank_without_an_open_round_learns_of_the_loss_with_its_next_update),
        CASE(the_first_broadcast_is_repeated_so_that_the_lane_has_the_parameters),
    };
    kind = argc > 1 ? argv[1] : "shm";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
