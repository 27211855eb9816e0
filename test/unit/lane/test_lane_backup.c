/* Tests states that are saved, restored, and copied for the next owner (RULES.md of svc/lane, A30,
 * A31; svc/wire, W16, W17). */
#include "test/unit/lane/update_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* ---- saved and restored ---- */

#define ARRAYS 3 /* number of arrays: parameters and the two moments of Adam */

static float saved[ARRAYS][ELEMENTS];

/* Saves the state in this round. Only rank 0 requests the save. */
static void save(uint64_t round)
{
    for (uint32_t rank = 0; rank < rig.count; rank++)
        rig_say(&rig, rank,
                (struct say){.piece = W,
                             .word = (uint32_t)round,
                             .round = round,
                             .elements = ELEMENTS,
                             .operation = RECORD_SAVE,
                             .has_no_input = true,
                             .has_no_output = rank > 0,
                             .output_blocks = ARRAYS});
    await_commit(round);
    memcpy(saved, rig_landing(&rig, 0, 0), sizeof saved);
}

static void restore(uint64_t round, uint64_t steps)
{
    const struct record_settings told = {.kind = RECORD_SETTINGS, .steps = steps};
    memcpy(rig_input(&rig, 0, 0), saved, sizeof saved);
    assert_int_equal(fabric_send(rig.workers[0].conn, &told, sizeof told, NULL, 0), 0);
    for (uint32_t rank = 0; rank < rig.count; rank++)
        rig_say(&rig, rank,
                (struct say){.piece = W,
                             .word = (uint32_t)round,
                             .round = round,
                             .elements = ELEMENTS,
                             .operation = RECORD_RESTORE,
                             .has_no_input = rank > 0,
                             .has_no_output = rank == 0,
                             .input_blocks = ARRAYS});
    await_commit(round);
    tell(0, &usual);
}

static void follow_adam(uint64_t from, uint64_t to)
{
    for (uint64_t round = from; round <= to; round++) {
        update_all(round);
        model_update(UPDATE_ADAM, round, &usual);
        expect_model(0);
    }
}

static void a_saved_state_is_parameters_and_moments_and_changes_nothing(void **state)
{
    start(2, UPDATE_ADAM);
    tell(0, &usual);
    set(1);
    model_set();
    follow_adam(2, 3);
    save(4);
    assert_memory_equal(saved, model, sizeof saved);
    follow_adam(5, 6);
}

static void a_restored_state_goes_on_to_the_same_bits(void **state)
{
    start(2, UPDATE_ADAM);
    tell(0, &usual);
    set(1);
    model_set();
    follow_adam(2, 4);
    save(5);
    rig_stop(&rig);
    start(2, UPDATE_ADAM);
    restore(1, 3);
    expect_model(1);
    follow_adam(2, 4);
}

static void no_snapshot_is_taken_before_the_first_state(void **state)
{
    start(1, UPDATE_ADAM);
    rig_say(&rig, 0,
            (struct say){.piece = W,
                         .word = 1,
                         .round = 1,
                         .elements = ELEMENTS,
                         .operation = RECORD_SAVE,
                         .has_no_input = true,
                         .output_blocks = ARRAYS});
    expect_error(0, -ENODATA, "declare and broadcast it");
}

static void a_state_of_other_arrays_than_the_rule_has_is_refused(void **state)
{
    start(1, UPDATE_MOMENTUM);
    rig_say(&rig, 0,
            (struct say){.piece = W,
                         .word = 1,
                         .round = 1,
                         .elements = ELEMENTS,
                         .operation = RECORD_SAVE,
                         .has_no_input = true,
                         .output_blocks = ARRAYS});
    expect_error(0, -EMSGSIZE, "");
}

/* ---- a new owner, and a copy ---- */

/* The copies are between rank 0's input and its landing area. */
static const uint64_t copies[2] = {ARRAYS * BYTES, 2 * ARRAYS *BYTES};

#define NOTE 4711

static const float *copy_of(uint32_t rank, uint64_t round)
{
    return rig_input(&rig, rank, copies[round & 1]);
}

static void keep(uint32_t rank, uint64_t since, uint64_t round, uint64_t steps)
{
    struct record_backup told = {
        .kind = RECORD_BACKUP, .piece = W, .note = NOTE, .offset = {copies[0], copies[1]}};
    told.since = since;
    told.steps[round % 3] = steps;
    assert_int_equal(fabric_send(rig.workers[rank].conn, &told, sizeof told, NULL, 0), 0);
}

/* Contents of the lost lane's copy: the states of the last round and of the round before. */
static float kept[2][ARRAYS * ELEMENTS];

static void note_copies(uint32_t rank)
{
    for (int half = 0; half < 2; half++)
        memcpy(kept[half], rig_input(&rig, rank, copies[half]), sizeof kept[half]);
}

static void bring_copies(uint32_t rank)
{
    for (int half = 0; half < 2; half++)
        memcpy(rig_input(&rig, rank, copies[half]), kept[half], sizeof kept[half]);
}

static void every_committed_state_lies_in_the_copy(void **state)
{
    start(2, UPDATE_ADAM);
    keep(1, 1, 1, 0);
    tell(0, &usual);
    set(1);
    model_set();
    assert_memory_equal(copy_of(1, 1), model[0], BYTES);
    for (uint64_t round = 2; round <= 5; round++) {
        update_all(round);
        model_update(UPDATE_ADAM, round, &usual);
        assert_memory_equal(copy_of(1, round), model, sizeof model);
    }
    save(6); /* a round that saves its state counts like any other round */
    assert_memory_equal(copy_of(1, 6), model, sizeof model);
}

/* Commits rounds 1 to `committed`. Then the lane dies. */
static void lose_lane_after(uint64_t committed)
{
    start(2, UPDATE_ADAM);
    keep(1, 1, 1, 0);
    tell(0, &usual);
    set(1);
    model_set();
    for (uint64_t round = 2; round <= committed; round++) {
        update_all(round);
        model_update(UPDATE_ADAM, round, &usual);
    }
    note_copies(1);
    rig_stop(&rig);
    recover(2, UPDATE_ADAM);
    bring_copies(1);
}

static void a_new_owner_continues_from_the_copy_with_the_same_bits(void **state)
{
    lose_lane_after(4);
    keep(1, 1, 4, 3);
    say(0, 4, RECORD_UPDATE, RECORD_IDLE);
    update(1, 5);
    rig_settle(&rig);
    assert_int_equal(rig.workers[0].errors_count + rig.workers[1].errors_count, 0);
    update(0, 5);
    await_commit(5);
    model_update(UPDATE_ADAM, 5, &usual);
    expect_model(0);
    follow_adam(6, 7);
    assert_memory_equal(copy_of(1, 7), model, sizeof model);
}

/* The lane died while it wrote the state of the open round, so the half of the copy for this round
 * is invalid. */
static void a_round_that_some_ranks_have_is_repeated_from_the_state_before(void **state)
{
    lose_lane_after(3);
    memset(rig_input(&rig, 1, copies[0]), 0x55, ARRAYS * BYTES);
    keep(1, 1, 3, 2);
    update(1, 4);
    for (uint64_t e = 0; e < ELEMENTS; e++)
        rig_input(&rig, 0, 0)[e] = gradient(0, 4, e);
    say(0, 4, RECORD_UPDATE, RECORD_HOLDS);
    await_commit(4);
    model_update(UPDATE_ADAM, 4, &usual);
    expect_model(1);
    follow_adam(5, 6);
}

static void a_rank_with_the_last_result_and_the_next_announcement_is_accepted(void **state)
{
    lose_lane_after(3);
    keep(1, 1, 3, 2);
    for (uint64_t e = 0; e < ELEMENTS; e++)
        rig_input(&rig, 0, 0)[e] = gradient(0, 4, e);
    say(0, 4, RECORD_UPDATE, RECORD_KEEPS);
    tell(0, &usual);
    say(0, 5, RECORD_UPDATE, RECORD_ANNOUNCE); /* rank 0 announces with the gradient of round 4 */
    rig_settle(&rig);
    update(1, 4);
    rig_until(&rig, rig.workers[1].commits_count == 1);
    model_update(UPDATE_ADAM, 4, &usual);
    expect_model(1);
}

static void a_copy_started_too_late_is_not_used(void **state)
{
    lose_lane_after(3);
    keep(1, 4, 3, 2);
    update(0, 4);
    update(1, 4);
    expect_error(0, -EOWNERDEAD, "died with the lane");
}

/* No worker stores a copy before the offer. */
static void an_offer_is_used_at_once_and_reported_when_the_copy_is_complete(void **state)
{
    start(2, UPDATE_ADAM);
    tell(0, &usual);
    set(1);
    model_set();
    follow_adam(2, 3);
    keep(1, RECORD_ROUND_NONE, 0, 0);
    rig_until(&rig, rig.workers[1].backed_count == 1);
    assert_int_equal(rig.workers[1].backed.piece, W);
    assert_int_equal(rig.workers[1].backed.note, NOTE);
    assert_int_equal(rig.workers[1].backed.round, 3);
    assert_int_equal(rig.workers[1].backed.steps, 2);
    assert_memory_equal(copy_of(1, 3), model, sizeof model);
    for (uint64_t round = 4; round <= 5; round++) {
        update_all(round);
        model_update(UPDATE_ADAM, round, &usual);
        expect_model(0);
        assert_memory_equal(copy_of(1, round), model, sizeof model);
    }
    assert_int_equal(rig.workers[1].backed_count, 1);
}

static void an_offer_in_mid_round_has_the_state_after_it(void **state)
{
    start(2, UPDATE_ADAM);
    tell(0, &usual);
    keep(0, RECORD_ROUND_NONE, 0, 0); /* rank 0 offers a copy that has no state yet */
    set(1);
    model_set();
    rig_until(&rig, rig.workers[0].backed_count == 1);
    assert_int_equal(rig.workers[0].backed.round, 1);
    assert_int_equal(rig.workers[0].backed.steps, 0);
    assert_memory_equal(copy_of(0, 1), model[0], BYTES);
    update(0, 2);
    update(1, 2);
    keep(1, RECORD_ROUND_NONE, 0, 0);
    await_commit(2);
    model_update(UPDATE_ADAM, 2, &usual);
    rig_settle(&rig);
    assert_memory_equal(copy_of(0, 2), model, sizeof model);
    assert_int_equal(rig.workers[1].backed_count, 0); /* rank 1's memory for a copy is not used */
}

static void an_existing_copy_precedes_an_offer_of_a_new_one(void **state)
{
    lose_lane_after(3);
    keep(0, RECORD_ROUND_NONE, 0, 0);
    keep(1, 1, 3, 2);
    update(0, 4);
    update(1, 4);
    await_commit(4);
    model_update(UPDATE_ADAM, 4, &usual);
    expect_model(0);
    assert_int_equal(rig.workers[0].backed_count, 0);
    assert_memory_equal(copy_of(1, 4), model, sizeof model);
}

/* Two ranks report a copy. One of these copies is old, because its rank has stopped storing
 * copies. */
static void of_two_ranks_that_claim_a_copy_the_newer_is_used(void **state)
{
    lose_lane_after(4);
    keep(0, 1, 4, 3); /* rank 0 claims a copy, but its memory contains none */
    keep(1, 2, 4, 3);
    update(0, 5);
    update(1, 5);
    await_commit(5);
    model_update(UPDATE_ADAM, 5, &usual);
    expect_model(0);
    assert_memory_equal(copy_of(1, 5), model, sizeof model);
}

static void a_copy_outside_lent_memory_disconnects_its_worker(void **state)
{
    start(2, UPDATE_ADAM);
    struct record_backup told = {
        .kind = RECORD_BACKUP, .piece = W, .offset = {0, RIG_REGION_BYTES - BYTES}, .since = 1};
    assert_int_equal(fabric_send(rig.workers[1].conn, &told, sizeof told, NULL, 0), 0);
    rig_until(&rig, rig.workers[1].is_closed);
}

#define CASE(name) cmocka_unit_test_teardown(name, stop)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CASE(a_saved_state_is_parameters_and_moments_and_changes_nothing),
        CASE(a_restored_state_goes_on_to_the_same_bits),
        CASE(no_snapshot_is_taken_before_the_first_state),
        CASE(a_state_of_other_arrays_than_the_rule_has_is_refused),
        CASE(every_committed_state_lies_in_the_copy),
        CASE(a_new_owner_continues_from_the_copy_with_the_same_bits),
        CASE(a_round_that_some_ranks_have_is_repeated_from_the_state_before),
        CASE(a_rank_with_the_last_result_and_the_next_announcement_is_accepted),
        CASE(a_copy_started_too_late_is_not_used),
        CASE(of_two_ranks_that_claim_a_copy_the_newer_is_used),
        CASE(an_offer_is_used_at_once_and_reported_when_the_copy_is_complete),
        CASE(an_offer_in_mid_round_has_the_state_after_it),
        CASE(an_existing_copy_precedes_an_offer_of_a_new_one),
        CASE(a_copy_outside_lent_memory_disconnects_its_worker),
    };
    kind = argc > 1 ? argv[1] : "shm";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
