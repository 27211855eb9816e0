/* Tests the state that moves with a piece (A27 of svc/lane): parameters, sums, clocks, sets, ranks
 * that have left, and failures. Also tests answers to an inconsistent state or request. */
#include "svc/lane/move/moved_state.h"
#include "svc/lane/move/regroup.h"
#include "svc/reduce/update.h"
#include "test/unit/lane/moving_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ELEMENTS 20000
#define BYTES (ELEMENTS * sizeof(float))

static struct rig *const from = &moving.from, *const to = &moving.to, *const alone = &moving.alone;

static void leave(struct rig *rig, uint32_t rank)
{
    struct record_leave record = {.kind = RECORD_LEAVE};
    assert_int_equal(fabric_send(rig->workers[rank].conn, &record, sizeof record, NULL, 0), 0);
    rig_settle(rig);
}

static void expect_closed(struct rig *rig, uint32_t rank, uint64_t round, float value)
{
    struct rig_worker *w = &rig->workers[rank];
    rig_until(rig, w->closed_count > 0);
    assert_int_equal(w->closed[0].round, round);
    expect(rig, rank, value);
}

/* ---- parameters ---- */

static void tell(struct rig *rig)
{
    static const struct record_settings settings = {.kind = RECORD_SETTINGS,
                                                    .rate = 0.01,
                                                    .weight_decay = 0.1,
                                                    .beta1 = 0.9,
                                                    .beta2 = 0.999,
                                                    .epsilon = 1e-8};
    assert_int_equal(fabric_send(rig->workers[0].conn, &settings, sizeof settings, NULL, 0), 0);
}

static void fill_gradient(struct rig *rig, uint32_t rank, uint64_t round)
{
    for (uint64_t e = 0; e < ELEMENTS; e++)
        rig_input(rig, rank, 0)[e] = (float)((rank * 7919 + round * 104729 + e) % 1009) / 512 - 1;
}

static void train(struct rig *rig, uint64_t round)
{
    uint8_t operation = round == 1 ? RECORD_BROADCAST : RECORD_UPDATE;
    for (uint32_t rank = 0; rank < rig->count; rank++) {
        fill_gradient(rig, rank, round);
        moving_say(rig, rank, round, operation, RECORD_ANNOUNCE);
    }
    for (uint32_t rank = 0; rank < rig->count; rank++)
        expect_commit(rig, rank, round);
}

static void moments_that_move_give_the_same_bits_as_those_that_stay(void **state)
{
    moving_start(3, ELEMENTS, (struct lane_terms){.rule = UPDATE_ADAM});
    moving_open(alone, 3, false);
    tell(from);
    tell(alone);
    for (uint64_t round = 1; round <= 3; round++) {
        train(from, round);
        train(alone, round);
    }
    moving_move(3);
    tell(to);
    for (uint64_t round = 4; round <= 6; round++) {
        train(to, round);
        train(alone, round);
        for (uint32_t rank = 0; rank < 3; rank++)
            assert_memory_equal(rig_landing(to, rank, 0), rig_landing(alone, rank, 0), BYTES);
    }
}

static void arrays_are_stored_last_and_a_release_has_the_steps_after_them(void **state)
{
    static float arrays[3 * ELEMENTS];
    struct lane_standing standing;
    moving_start(2, ELEMENTS, (struct lane_terms){.rule = UPDATE_ADAM});
    moving_release();
    assert_int_equal(lane_standing(from->lane, RIG_JOB, MOVED, &standing), 0);
    assert_int_equal(standing.steps, 0); /* no parameters were broadcast */
    lane_thaw(from->lane, RIG_JOB, moved, 1);
    tell(from);
    for (uint64_t round = 1; round <= 3; round++)
        train(from, round);
    moving_release();
    assert_int_equal(lane_standing(from->lane, RIG_JOB, MOVED, &standing), 0);
    assert_int_equal(standing.round, 3);
    assert_int_equal(standing.steps, 2 + 1);
    assert_int_equal(lane_state_read(from->lane, RIG_JOB, MOVED,
                                     standing.state_bytes - sizeof arrays, arrays, sizeof arrays),
                     sizeof arrays);
    assert_memory_equal(arrays, rig_landing(from, 0, 0), BYTES); /* parameters come first */
}

static void a_state_is_put_into_memory_that_is_counted_already(void **state)
{
    moving_start(2, ELEMENTS, (struct lane_terms){.rule = UPDATE_ADAM});
    tell(from);
    train(from, 1);
    train(from, 2);
    moving_open(to, 2, true);
    uint64_t before = lane_job_memory(to->lane, RIG_JOB);
    moving_release();
    assert_int_equal(moving_hand_over(), 2);
    assert_int_equal(lane_job_memory(to->lane, RIG_JOB), before);
}

/* ---- elastic jobs ---- */

static void start_elastic(uint64_t rounds)
{
    moving_start(3, ELEMENTS, (struct lane_terms){.rule = UPDATE_ADAM});
    moving_open(alone, 3, false);
    lane_set_elastic(from->lane, RIG_JOB);
    lane_set_elastic(alone->lane, RIG_JOB);
    tell(from);
    tell(alone);
    for (uint64_t round = 1; round <= rounds; round++) {
        train(from, round);
        train(alone, round);
    }
}

static void move_elastic(uint64_t round)
{
    moving_open(to, 3, true);
    lane_set_elastic(to->lane, RIG_JOB);
    moving_release();
    assert_int_equal(moving_hand_over(), round);
    lane_drop(from->lane, RIG_JOB, moved, 1);
}

static void lose(struct rig *rig, uint32_t rank)
{
    const uint64_t gone[RECORD_MISSING_WORDS] = {1u << rank};
    uint64_t left[RECORD_MISSING_WORDS] = {7 & ~(1u << rank)};
    struct lane_piece spec = moving.spec;
    spec.dtype = REDUCE_F32;
    spec.ranks = left;
    assert_int_equal(lane_release(rig->lane, RIG_JOB, moved, 1), 0);
    lane_let_go(rig->lane, RIG_JOB, gone);
    rig_until(rig, lane_rested(rig->lane, RIG_JOB, moved, 1) == 1);
    assert_int_equal(lane_regroup(rig->lane, RIG_JOB, 2, &spec, 1), 0);
}

static void train_again(struct rig *rig, uint32_t lost, uint64_t round)
{
    for (uint32_t rank = 0; rank < 3; rank++) {
        if (rank == lost)
            continue;
        fill_gradient(rig, rank, round);
        rig_say(rig, rank,
                (struct say){.piece = MOVED,
                             .word = (uint32_t)(2 * MOVED_OFFSET + round),
                             .round = round,
                             .elements = ELEMENTS,
                             .operation = RECORD_UPDATE,
                             .epoch = 2});
    }
    for (uint32_t rank = 0; rank < 3; rank++) {
        const struct rig_worker *w = &rig->workers[rank];
        if (rank == lost)
            continue;
        rig_until(rig, w->commits_count > 0 &&
                           w->commits[w->commits_count - 1] == 2 * MOVED_OFFSET + round);
        assert_int_equal(w->errors_count, 0);
    }
}

static void expect_the_same(uint32_t rank)
{
    assert_memory_equal(rig_landing(to, rank, 0), rig_landing(alone, rank, 0), BYTES);
}

static void a_repeated_step_after_a_move_starts_from_the_earlier_parameters(void **state)
{
    for (uint64_t last = 3; last <= 4; last++) {
        start_elastic(last);
        move_elastic(last);
        lose(to, 2);
        lose(alone, 2);
        for (uint64_t round = last; round <= last + 2; round++) {
            train_again(to, 2, round);
            train_again(alone, 2, round);
            expect_the_same(0);
            expect_the_same(1);
        }
        moving_stop(state);
        moving_clear(state);
    }
}

static void settings_move_along(void **state)
{
    start_elastic(3);
    move_elastic(3);
    lose(to, 0); /* this rank has never connected to this lane */
    lose(alone, 0);
    train_again(to, 0, 4);
    train_again(alone, 0, 4);
    expect_the_same(1);
    expect_the_same(2);
}

/* ---- partial quorums ---- */

static void of_a_running_sum_nothing_is_lost_and_nothing_added_twice(void **state)
{
    moving_start(2, ELEMENTS, (struct lane_terms){.quorum = QUORUM_ANY});
    push(from, 0, 1, 1);
    expect_commit(from, 0, 1);
    for (uint64_t round = 1; round <= 2; round++) {
        push(from, 1, round, 10);
        expect_commit(from, 1, round);
    }
    moving_move(3);
    stand(to, 1, 2, RECORD_ANNOUNCE); /* rank 1 does not know that the sum contains its gradient */
    expect_commit(to, 1, 2);
    assert_int_equal(to->workers[1].words_count, 0);
    push(to, 0, 2, 100);
    expect_commit(to, 0, 2);
    expect(to, 0, 121);
    push(to, 1, 3, 1000);
    expect_commit(to, 1, 3);
    expect(to, 1, 1121);
}

static void clocks_that_cannot_be_are_refused(void **state)
{
    moving_start(2, ELEMENTS, (struct lane_terms){.quorum = QUORUM_ANY});
    for (uint64_t round = 1; round <= 2; round++) {
        push(from, 1, round, 10);
        expect_commit(from, 1, round);
    }
    moving_move(2);
    stand(to, 1, 3, RECORD_HOLDS);
    expect_error(to, 1, -EPROTO);
    stand(to, 1, 1, RECORD_IDLE);
    expect_error(to, 1, -EPROTO);
    stand(to, 1, 4, RECORD_ANNOUNCE);
    expect_error(to, 1, -EPROTO);
    push(to, 1, 3, 1);
    expect_commit(to, 1, 3);
    expect(to, 1, 21);
}

/* Before the move rank 1 was the slowest rank. After the move rank 1 has sent no message. */
static void the_slowest_rank_is_known_before_its_announcement(void **state)
{
    moving_start(2, ELEMENTS, (struct lane_terms){.quorum = QUORUM_STALE, .bound = 1});
    push(from, 0, 1, 1);
    expect_commit(from, 0, 1);
    push(from, 0, 2, 1);
    expect_commit(from, 0, 2);
    moving_move(2);
    push(to, 0, 3, 1); /* this round is two rounds ahead of rank 1 */
    rig_settle(to);
    assert_int_equal(to->workers[0].words_count, 0);
    push(to, 1, 1, 10);
    expect_commit(to, 0, 3);
    expect_commit(to, 1, 1);
}

static void the_late_get_the_result_that_was_kept(void **state)
{
    moving_start(3, ELEMENTS, (struct lane_terms){.quorum = QUORUM_FIRST, .bound = 2});
    push(from, 0, 1, 2);
    push(from, 2, 1, 6);
    expect_commit(from, 0, 1);
    moving_move(1);
    stand(to, 1, 1, RECORD_ANNOUNCE);
    expect_closed(to, 1, 1, 8);
    stand(to, 2, 1, RECORD_HOLDS);
    rig_until(to, to->workers[2].closed_count == 1);
    push(to, 0, 2, 1);
    push(to, 1, 2, 3);
    expect_commit(to, 0, 2);
    expect(to, 1, 4);
}

/* When the piece is released, late ranks still wait for an answer of the lane. */
static void the_next_lane_answers_late_ranks_of_a_released_piece(void **state)
{
    moving_start(3, ELEMENTS, (struct lane_terms){.quorum = QUORUM_FIRST, .bound = 2});
    push(from, 0, 1, 2);
    push(from, 2, 1, 6);
    expect_commit(from, 0, 1);
    moving_open(to, 3, true);
    moving_release();
    push(from, 1, 1, 5);
    rig_settle(from);
    assert_int_equal(from->workers[1].words_count, 0);
    assert_int_equal(moving_hand_over(), 1);
    stand(to, 1, 1, RECORD_ANNOUNCE);
    expect_closed(to, 1, 1, 8);
    lane_thaw(from->lane, RIG_JOB, moved, 1); /* thaws the piece, as after an aborted move */
    expect_closed(from, 1, 1, 8);
}

/* The ranks of round 1 have its result, but none of these ranks knows the set. */
static void the_next_leader_sends_the_set_that_a_leader_decided(void **state)
{
    moving_start(3, ELEMENTS,
                 (struct lane_terms){.quorum = QUORUM_FIRST, .bound = 2, .role = LEADS_SETS});
    push(from, 0, 1, 2);
    push(from, 2, 1, 6);
    expect_commit(from, 0, 1);
    moving_move(1);
    stand(to, 0, 1, RECORD_HOLDS);
    rig_until(to, to->workers[0].closed_count == 1);
    assert_int_equal(to->workers[0].chosen_count, 1);
    assert_int_equal(to->workers[0].chosen.round, 1);
    assert_int_equal(to->workers[0].chosen.ranks[0], 5);
}

static void a_known_set_moves_with_the_piece_that_waits_for_it(void **state)
{
    struct record_chosen chosen = {.kind = RECORD_CHOSEN, .round = 1, .ranks = {1}};
    moving_start(2, ELEMENTS, (struct lane_terms){.quorum = QUORUM_CHOSEN, .bound = 1});
    assert_int_equal(fabric_send(from->workers[1].conn, &chosen, sizeof chosen, NULL, 0), 0);
    rig_settle(from);
    moving_move(0);
    push(to, 1, 1, 9);
    push(to, 0, 1, 4);
    expect_commit(to, 0, 1);
    expect(to, 0, 4);
}

/* Another piece of the job waits for this set on the new lane. */
static void a_set_that_comes_with_a_piece_begins_the_rounds_that_wait_for_it(void **state)
{
    struct record_chosen chosen = {.kind = RECORD_CHOSEN, .round = 1, .ranks = {1}};
    moving_start(2, ELEMENTS, (struct lane_terms){.quorum = QUORUM_CHOSEN, .bound = 1});
    moving_open(to, 2, true);
    moving.spec.id = MOVED + 1;
    rig_place_piece(to, 2, moving.spec, false);
    for (uint64_t e = 0; e < ELEMENTS; e++)
        rig_input(to, 0, 0)[e] = 6;
    rig_say(to, 0,
            (struct say){.piece = MOVED + 1, .word = MOVED + 1, .round = 1, .elements = ELEMENTS});
    rig_settle(to);
    assert_int_equal(to->workers[0].commits_count, 0);
    assert_int_equal(fabric_send(from->workers[1].conn, &chosen, sizeof chosen, NULL, 0), 0);
    rig_settle(from);
    moving_release();
    moving_hand_over();
    rig_until(to, to->workers[0].commits_count == 1);
    assert_int_equal(to->workers[0].commits[0], MOVED + 1);
    expect(to, 0, 6);
}

/* ---- failures ---- */

static void a_failure_moves_along(void **state)
{
    moving_start(2, ELEMENTS, (struct lane_terms){0});
    do_round(from, 1, 5);
    push(from, 0, 2, 1);
    rig_settle(from);
    moving_say(from, 1, 2, RECORD_MAX, RECORD_ANNOUNCE);
    expect_error(from, 0, -EINVAL);
    moving_move(1);
    push(to, 1, 2, 1);
    expect_error(to, 1, -EINVAL);
}

/* The former lane has reported the failure with a word that is no longer in use. */
static void a_worker_gets_a_failure_in_any_state_of_its_round(void **state)
{
    moving.spec =
        (struct lane_piece){.id = MOVED, .elements = ELEMENTS, .terms = {.quorum = QUORUM_ANY}};
    moving_open(from, 2, true);
    stand(from, 0, 1, RECORD_IDLE);
    stand(from, 1, 1, RECORD_HOLDS);
    expect_error(from, 1, -EOWNERDEAD);
    moving_move(1); /* no rank has contributed to the sum */
    stand(to, 1, 1, RECORD_HOLDS);
    expect_error(to, 1, -EOWNERDEAD);
}

static void the_next_owner_gets_the_ranks_that_have_left(void **state)
{
    moving_start(3, ELEMENTS, (struct lane_terms){0});
    do_round(from, 1, 5);
    leave(from, 1);
    rig_start(to, moving.kind);
    rig_place_piece(to, 3, moving.spec, true);
    to->count = 3;
    rig_connect(to, 0, RIG_JOB, 0);
    moving_release();
    assert_int_equal(moving_hand_over(), 1);
    stand(to, 0, 1, RECORD_ANNOUNCE);
    expect_commit(to, 0, 1); /* the lane does not wait for a rank that has left */
    push(to, 0, 2, 1);
    expect_error(to, 0, -EPIPE);
}

static void a_goodbye_to_a_frozen_piece_ends_its_round_as_ever(void **state)
{
    moving_start(2, ELEMENTS, (struct lane_terms){0});
    do_round(from, 1, 5);
    moving_release();
    push(from, 0, 2, 1);
    rig_settle(from);
    leave(from, 1);
    expect_error(from, 0, -EPIPE);
}

static void a_job_that_fails_while_frozen_fails_as_ever(void **state)
{
    struct lane_standing standing;
    moving_start(2, ELEMENTS, (struct lane_terms){0});
    do_round(from, 1, 5);
    moving_release();
    fabric_close(from->workers[1].fabric);
    from->workers[1].fabric = NULL;
    expect_error(from, 0, -ECONNRESET);
    assert_int_equal(lane_is_releasing(from->lane, RIG_JOB, moved, 1), -ECONNABORTED);
    assert_int_equal(lane_standing(from->lane, RIG_JOB, MOVED, &standing), -ECONNABORTED);
    assert_int_equal(lane_release(from->lane, RIG_JOB, moved, 1), -ECONNABORTED);
}

static void a_drop_ends_a_release_and_frees_the_piece(void **state)
{
    moving_start(2, RIG_LANDING / sizeof(float), (struct lane_terms){0});
    push(from, 0, 1, 1);
    push(from, 1, 1, 1);
    rig_until_busy(from);
    assert_int_equal(lane_release(from->lane, RIG_JOB, moved, 1), 0);
    lane_drop(from->lane, RIG_JOB, moved, 1);
    assert_int_equal(lane_is_releasing(from->lane, RIG_JOB, moved, 1), -ECANCELED);
    assert_int_equal(lane_release(from->lane, RIG_JOB, moved, 1), -ENOENT);
    rig_until(from, from->workers[0].words_count == 1 && lane_is_quiet(from->lane));
    rig_place_piece(from, 2, moving.spec, false); /* the lane has room for the piece again */
}

/* ---- inconsistent states and requests ---- */

static void requests_without_sense_are_refused(void **state)
{
    static const uint32_t both[] = {MOVED, 99};
    static const uint64_t rounds[] = {1, 1};
    struct lane_standing standing;
    struct lane *lane;
    char byte;
    moving_start(2, ELEMENTS, (struct lane_terms){0});
    lane = from->lane;
    do_round(from, 1, 5);
    assert_int_equal(lane_release(lane, RIG_JOB, both, 2), -ENOENT);
    /* no piece is being released */
    assert_int_equal(lane_is_releasing(lane, RIG_JOB, moved, 1), -ECANCELED);
    assert_int_equal(lane_release(lane, 99, moved, 1), -ENOENT);
    lane_thaw(lane, 99, moved, 1);
    lane_thaw(lane, RIG_JOB, both, 2);
    assert_int_equal(lane_standing(lane, RIG_JOB, MOVED, &standing), -EBUSY);
    assert_int_equal(lane_state_read(lane, RIG_JOB, MOVED, 0, &byte, 1), -EBUSY);
    assert_int_equal(lane_state_read(lane, RIG_JOB, 99, 0, &byte, 1), -ENOENT);
    assert_int_equal(lane_state_put(lane, RIG_JOB, MOVED, 0, &byte, 1), -EBUSY);
    assert_int_equal(lane_state_put(lane, RIG_JOB, 99, 0, &byte, 1), -ENOENT);
    assert_int_equal(lane_install(lane, RIG_JOB, moved, rounds, 1), -EBUSY);
    assert_int_equal(lane_install(lane, 99, moved, rounds, 1), -ENOENT);
    moving_release();
    assert_int_equal(lane_standing(lane, RIG_JOB, MOVED, &standing), 0);
    assert_int_equal(standing.state_bytes, 0);
    assert_int_equal(lane_state_read(lane, RIG_JOB, MOVED, 0, &byte, 1), 0);
    assert_int_equal(lane_state_read(lane, RIG_JOB, MOVED, 1, &byte, 1), -EINVAL);
    do_round(from, 1, 5); /* a repeated message has no effect */
}

/* Reads the state of a running sum after one round into `ret_state`. Returns its size. */
static size_t read_sum(char **ret_state)
{
    static char data[LANE_STATE_HEAD_BYTES + BYTES];
    moving_start(2, ELEMENTS, (struct lane_terms){.quorum = QUORUM_ANY});
    push(from, 0, 1, 1);
    expect_commit(from, 0, 1);
    moving_release();
    moving_open(to, 2, true);
    *ret_state = data;
    return (size_t)lane_state_read(from->lane, RIG_JOB, MOVED, 0, data, sizeof data);
}

static int put(uint64_t offset, const char *data, size_t bytes)
{
    return lane_state_put(to->lane, RIG_JOB, MOVED, offset, data, bytes);
}

static int install(uint64_t round) { return lane_install(to->lane, RIG_JOB, moved, &round, 1); }

static void a_state_that_is_not_whole_is_not_installed(void **state)
{
    char *data;
    size_t bytes = read_sum(&data);
    assert_int_equal(install(1), -EBADMSG);
    assert_int_equal(put(0, data, 0), -EBADMSG);
    assert_int_equal(put(0, data, 100), -EBADMSG); /* shorter than a header */
    assert_int_equal(put(1, data, bytes), -EINVAL);
    assert_int_equal(put(0, data, bytes + 1), -EBADMSG);
    assert_int_equal(put(0, data, bytes - 1), 0);
    assert_int_equal(install(1), -EBADMSG);
    assert_int_equal(put(0, data, bytes), -EINVAL);
    assert_int_equal(put(bytes - 1, data + bytes - 1, 2), -EBADMSG);
    assert_int_equal(put(bytes - 1, data + bytes - 1, 1), 0);
    assert_int_equal(install(2), -EBADMSG); /* a state of another round */
    assert_int_equal(install(UINT64_MAX), -EINVAL);
    assert_int_equal(install(1), 0);
    assert_int_equal(install(1), -EBUSY);
    push(to, 1, 1, 10);
    expect_commit(to, 1, 1);
    expect(to, 1, 11);
}

static void an_install_is_all_or_nothing(void **state)
{
    static const uint32_t pieces[] = {MOVED, 2}, twice[] = {MOVED, 2, MOVED};
    static const uint64_t rounds[] = {3, 5, 3}, zeros[] = {0, 0};
    moving_start(1, ELEMENTS, (struct lane_terms){0});
    moving_open(to, 1, true);
    assert_int_equal(lane_install(to->lane, RIG_JOB, pieces, rounds, 2), -ENOENT);
    rig_place(to, RIG_JOB, 1, 2, 1, 10, true);
    /* the rounds are unknown */
    assert_int_equal(lane_install(to->lane, RIG_JOB, pieces, zeros, 2), 0);
    assert_int_equal(lane_install(to->lane, RIG_JOB, twice, rounds, 3), 0);
    push(to, 0, 4, 7);
    expect_commit(to, 0, 4);
    assert_int_equal(lane_install(to->lane, RIG_JOB, pieces, rounds, 2), -EBUSY);
}

/* The test changes one byte of the header. The lane must refuse this state, or must be able to use
 * it. */
static void no_byte_of_a_state_does_harm(void **state)
{
    static char bad[LANE_STATE_HEAD_BYTES + BYTES];
    char *data;
    size_t bytes = read_sum(&data), head = bytes - BYTES, refused = 0;
    for (size_t i = 0; i < head; i++) {
        memcpy(bad, data, bytes);
        bad[i] = (char)(bad[i] ^ 0xff);
        rig_until(to, lane_is_quiet(to->lane));
        lane_drop(to->lane, RIG_JOB, moved, 1);
        rig_place_piece(to, 2, moving.spec, true);
        refused += put(0, bad, bytes) < 0 || install(1) < 0;
        push(to, 0, 2, 1);
        push(to, 1, 1, 1);
        rig_turn(to);
    }
    assert_true(refused > 40 && refused < head);
    rig_settle(to);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, moving_clear, moving_stop)
static const struct CMUnitTest cases[] = {
    CASE(moments_that_move_give_the_same_bits_as_those_that_stay),
    CASE(arrays_are_stored_last_and_a_release_has_the_steps_after_them),
    CASE(a_state_is_put_into_memory_that_is_counted_already),
    CASE(a_repeated_step_after_a_move_starts_from_the_earlier_parameters),
    CASE(settings_move_along),
    CASE(of_a_running_sum_nothing_is_lost_and_nothing_added_twice),
    CASE(clocks_that_cannot_be_are_refused),
    CASE(the_slowest_rank_is_known_before_its_announcement),
    CASE(the_late_get_the_result_that_was_kept),
    CASE(the_next_lane_answers_late_ranks_of_a_released_piece),
    CASE(the_next_leader_sends_the_set_that_a_leader_decided),
    CASE(a_known_set_moves_with_the_piece_that_waits_for_it),
    CASE(a_set_that_comes_with_a_piece_begins_the_rounds_that_wait_for_it),
    CASE(a_failure_moves_along),
    CASE(a_worker_gets_a_failure_in_any_state_of_its_round),
    CASE(the_next_owner_gets_the_ranks_that_have_left),
    CASE(a_goodbye_to_a_frozen_piece_ends_its_round_as_ever),
    CASE(a_job_that_fails_while_frozen_fails_as_ever),
    CASE(a_drop_ends_a_release_and_frees_the_piece),
    CASE(requests_without_sense_are_refused),
    CASE(a_state_that_is_not_whole_is_not_installed),
    CASE(an_install_is_all_or_nothing),
    CASE(no_byte_of_a_state_does_harm),
};

int main(int argc, char **argv)
{
    moving.kind = argc > 1 ? argv[1] : "shm";
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests_name(moving.kind, cases, NULL, NULL);
}
