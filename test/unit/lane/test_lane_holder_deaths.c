/* Kills the owner or a holder of a copy at every step of a round and of a recovery (RULES.md of
 * svc/lane, A49; svc/wire, W20). The bits of the results must always be the same. Over the network
 * or with a sanitizer only some steps are tested; with GRADPOOL_TEST_LONG all steps are tested. */
#include "test/lib/extent.h"
#include "test/unit/lane/holder_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define STEPS_MOST 10000 /* maximum number of steps of a case */

static char landed[RANKS][BYTES];
static bool has_heard[RANKS], has_result[RANKS];

/* Runs this number of steps. In each step the lane has one turn, and then one worker or no worker
 * polls. */
static void walk(uint32_t steps)
{
    for (uint32_t step = 0; step < steps; step++) {
        for (uint32_t i = 0; i <= HOLDER; i++)
            rig.workers[i].is_stopped = step % (HOLDER + 2) != i;
        rig_turn(&rig);
    }
    for (uint32_t i = 0; i <= HOLDER; i++)
        rig.workers[i].is_stopped = false;
}

/* Returns whether all workers have received the commit of the round. */
static bool look_who_has_heard(uint64_t round)
{
    bool have_all = true;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        const struct rig_worker *w = &rig.workers[rank];
        has_heard[rank] = w->commits_count > 0 && w->commits[w->commits_count - 1] == round;
        has_result[rank] = w->words_count > 0 && w->words[w->words_count - 1] == round;
        have_all &= has_heard[rank];
    }
    return have_all;
}

/* Kills the lane. Copies in workers' memory remain. */
static void lose_lane_alone(void)
{
    for (uint32_t rank = 0; rank < RANKS; rank++)
        memcpy(landed[rank], rig_landing(&rig, rank, 0), BYTES);
    lose_lane();
    for (uint32_t rank = 0; rank < RANKS; rank++)
        memcpy(rig_landing(&rig, rank, 0), landed[rank], BYTES);
}

/* Kills the owner. The copy at the holder also remains. */
static void lose_owner(void)
{
    lose_lane_alone();
    bring_copy();
    keep(HOLDER);
}

static void stand(uint32_t rank, uint64_t round)
{
    if (has_heard[rank])
        say(rank, round, RECORD_UPDATE, RECORD_IDLE);
    else
        lend(rank, round, has_result[rank] ? RECORD_HOLDS : RECORD_ANNOUNCE);
}

static void all_stand(uint64_t round)
{
    for (uint32_t rank = 0; rank < RANKS; rank++)
        stand(rank, round);
}

/* Checks that each rank with the commit has the result, and that all other ranks then receive
 * commit and result. */
static void expect_round(uint64_t round)
{
    model_update(UPDATE_ADAM, round, &usual);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        const struct rig_worker *w = &rig.workers[rank];
        if (!has_heard[rank])
            rig_until(&rig, w->commits_count > 0 && w->commits[w->commits_count - 1] == round);
        assert_int_equal(w->errors_count, 0);
    }
    expect_model(0);
}

static void expect_to_go_on_from(uint64_t round)
{
    follow(round, round + 1);
    expect_kept(HOLDER, round + 1);
    rig_stop(&rig);
}

static bool owner_dies_in_round(uint32_t steps)
{
    start_with_holder(3);
    announce_all(4);
    walk(steps);
    bool is_over = look_who_has_heard(4);
    lose_owner();
    all_stand(4);
    expect_round(4);
    expect_to_go_on_from(5);
    return is_over;
}

static bool holder_dies_in_round(uint32_t steps)
{
    start_with_holder(3);
    announce_all(4);
    walk(steps);
    bool is_over = look_who_has_heard(4);
    end_connection(HOLDER);
    memset(rig_input(&rig, HOLDER, halves[0]), 0, 2 * HALF_BYTES); /* the new holder has no copy */
    connect_again(HOLDER);
    keep(HOLDER);
    expect_round(4);
    expect_to_go_on_from(5);
    return is_over;
}

/* The next holder connects before the coordinator has sent its name to the owner. */
static bool owner_dies_before_the_next_holder_counts(uint32_t steps)
{
    start_with_holder(3);
    announce_all(4);
    walk(steps);
    bool is_over = look_who_has_heard(4);
    lose_lane_alone();
    name(NUMBER(OTHER), true);
    connect_holder(OTHER);
    keep(OTHER);
    bring_copy();
    keep(HOLDER);
    all_stand(4);
    expect_round(4);
    follow(5, 6);
    expect_kept(OTHER, 6);
    rig_stop(&rig);
    return is_over;
}

/* The holder dies during a round, and then the piece moves. The next lane repeats the round,
 * although some ranks may already have the result. */
static bool holder_dies_before_a_move(uint32_t steps)
{
    struct lane_standing standing;
    start_with_holder(3);
    announce_all(4);
    walk(steps);
    end_connection(HOLDER);
    size_t bytes = let_go(&standing);
    bool is_over = look_who_has_heard(4);
    lose_lane_alone();
    hand_over(bytes, standing.round);
    connect_holder(HOLDER); /* connects a new holder, which has no copy */
    keep(HOLDER);
    all_stand(4);
    expect_round(4);
    expect_to_go_on_from(5);
    return is_over;
}

static bool owner_dies_in_recovery(uint32_t steps)
{
    start_with_holder(4);
    (void)look_who_has_heard(4);
    lose_owner();
    all_stand(4);
    walk(steps);
    bool is_over = lane_may_move(rig.lane, RIG_JOB, pieces, 1) == 0;
    lose_owner();
    announce_all(5);
    expect_commit(5);
    expect_to_go_on_from(6);
    return is_over;
}

static bool owner_dies_before_all_have_spoken(uint32_t steps)
{
    start_with_holder(3);
    announce_all(4);
    lose_owner();
    update(0, 4);
    walk(steps);
    bool is_over = steps > 4; /* after four steps the state no longer changes */
    has_heard[0] = has_heard[1] = false;
    lose_owner();
    announce_all(4);
    expect_round(4);
    expect_to_go_on_from(5);
    return is_over;
}

static void expect_next(uint64_t round)
{
    say_anew(0, round, RECORD_ANNOUNCE);
    expect_commit(round);
    expect_kept(HOLDER, round);
}

/* A host fails with an owner and a rank, and the rank's gradient is lost. No rank may have received
 * a result whose state is not in the copy. */
static bool owner_and_rank_die_in_round(uint32_t steps)
{
    start_with_holder(3);
    lane_set_elastic(rig.lane, RIG_JOB);
    announce_all(4);
    walk(steps);
    bool is_over = look_who_has_heard(4);
    assert_true(!has_result[0] || has_heard[0]);
    if (has_heard[0])
        /* the update uses the mean of the gradients of both ranks */
        model_update(UPDATE_ADAM, 4, &usual);
    lose_lane();
    lane_set_elastic(rig.lane, RIG_JOB);
    regroup(1);
    bring_copy();
    keep(HOLDER);
    if (has_heard[0])
        say_anew(0, 4, RECORD_IDLE);
    else
        expect_next(4);
    expect_next(5);
    assert_int_equal(rig.workers[0].errors_count, 0);
    rig_stop(&rig);
    return is_over;
}

static void each_step(const char *what, bool (*dies)(uint32_t steps))
{
    uint32_t stride = strcmp(kind, "shm") == 0 ? extent(1, 7, 1) : extent(11, 47, 1), steps = 0;
    while (!dies(steps))
        assert_true((steps += stride) < STEPS_MOST);
    print_message("# %s: at %u of %u steps\n", what, steps / stride + 1, steps + 1);
    rig_start(&rig, kind); /* stop(), which runs after the case, needs a rig */
}

static void an_owner_may_die_at_any_step_of_a_round(void **state)
{
    each_step("the owner, in a round", owner_dies_in_round);
}

static void an_owner_may_die_though_the_next_has_another_holder(void **state)
{
    each_step("the owner, before the next holder counts", owner_dies_before_the_next_holder_counts);
}

static void a_holder_may_die_at_any_step_of_a_round_before_a_move(void **state)
{
    each_step("who keeps a copy, before a move", holder_dies_before_a_move);
}

static void a_holder_may_die_at_any_step_of_a_round(void **state)
{
    each_step("who keeps a copy, in a round", holder_dies_in_round);
}

static void an_owner_may_die_with_a_rank_at_any_step_of_a_round(void **state)
{
    each_step("the owner and a rank, in a round", owner_and_rank_die_in_round);
}

static void the_next_owner_may_die_at_any_step_of_its_recovery(void **state)
{
    each_step("the next owner, while it takes over", owner_dies_in_recovery);
}

static void the_next_owner_may_die_while_a_rank_is_silent(void **state)
{
    each_step("the next owner, while it waits", owner_dies_before_all_have_spoken);
}

#define CASE(name) cmocka_unit_test_teardown(name, stop)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CASE(an_owner_may_die_at_any_step_of_a_round),
        CASE(an_owner_may_die_though_the_next_has_another_holder),
        CASE(a_holder_may_die_at_any_step_of_a_round),
        CASE(a_holder_may_die_at_any_step_of_a_round_before_a_move),
        CASE(an_owner_may_die_with_a_rank_at_any_step_of_a_round),
        CASE(the_next_owner_may_die_at_any_step_of_its_recovery),
        CASE(the_next_owner_may_die_while_a_rank_is_silent),
    };
    kind = argc > 1 ? argv[1] : "shm";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
