/* Tests recording and replay of sets on the leader lane (A115, A116). Rank 0 sends the sets and
 * takers of a recording, and receives those of the job. */
#include "svc/base/clock.h"
#include "svc/lane/job/table.h"
#include "test/unit/lane/lane_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 3
#define HIDDEN 1
#define BEGIN_NS (100 * NS_PER_S)
#define SPAN_NS (50 * NS_PER_MS)
/* sets, as bits of ranks */
#define ONE_AND_TWO 6
#define ZERO_AND_ONE 3
#define ZERO_AND_TWO 5
#define ALL 7

static const char *kind;
static struct rig rig;
static uint32_t lag; /* value 0: the lanes of the job update parameters */

static int stop(void **state)
{
    rig_stop(&rig);
    lag = 0;
    return 0;
}

static void place(uint32_t sets, bool recovering)
{
    const struct backup_terms terms = {
        .rule = BACKUP_TERMS_STATIC, .k = 2, .absence = UINT32_MAX, .sets = sets};
    const struct lane_piece hidden = {
        .id = HIDDEN,
        .terms = {.quorum = QUORUM_FIRST, .bound = 2, .role = LEADS_ROUNDS, .lag = lag},
        .backup = &terms};
    rig_place_piece(&rig, RANKS, hidden, recovering);
}

static void start(uint32_t sets, bool recovering)
{
    rig_start(&rig, kind);
    rig.clock_ns = BEGIN_NS;
    place(sets, recovering);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        rig_connect(&rig, rank, RIG_JOB, rank);
    rig.count = RANKS;
}

static void stand(uint32_t rank, uint64_t round, uint8_t standing)
{
    struct piece *hidden = piece_find(job_find(rig.lane, RIG_JOB), HIDDEN);
    rig_say(&rig, rank,
            (struct say){.piece = HIDDEN,
                         .word = (uint32_t)round,
                         .round = round,
                         .operation = RECORD_BARRIER,
                         .standing = standing,
                         .has_no_input = true,
                         .has_no_output = true});
    rig_until(&rig, rank_said(&hidden->ranks[rank], round)->round == round);
}

static void end(uint32_t rank, uint64_t round) { stand(rank, round, RECORD_ANNOUNCE); }

static void report(uint32_t rank, uint64_t round)
{
    const struct record_landed landed = {.kind = RECORD_LANDED, .piece = HIDDEN, .round = round};
    assert_int_equal(fabric_send(rig.workers[rank].conn, &landed, sizeof landed, NULL, 0), 0);
    rig_settle(&rig);
}

static void send_takers(uint32_t rank, uint64_t round, uint64_t takers, bool is_last)
{
    const struct record_chosen record = {.kind = RECORD_PASSED,
                                         .form = RECORD_FORM_TAKERS,
                                         .reason = is_last ? RECORD_REASON_REPLAY : 0,
                                         .round = round,
                                         .ranks = {takers}};
    assert_int_equal(fabric_send(rig.workers[rank].conn, &record, sizeof record, NULL, 0), 0);
}

/* Sends the set and the takers of a recorded round, as rank 0. */
static void replay(uint64_t round, uint64_t set, uint64_t takers, bool is_last)
{
    const struct record_chosen chosen = {
        .kind = RECORD_CHOSEN, .reason = RECORD_REASON_REPLAY, .round = round, .ranks = {set}};
    assert_int_equal(fabric_send(rig.workers[0].conn, &chosen, sizeof chosen, NULL, 0), 0);
    send_takers(0, round, takers, is_last);
    rig_settle(&rig);
}

static bool is_closed(uint32_t rank, uint64_t round)
{
    const struct rig_worker *w = &rig.workers[rank];
    return w->commits_count > 0 && w->commits[w->commits_count - 1] == round;
}

static void expect_closed(uint64_t round, uint64_t set)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (set >> rank & 1)
            rig_until(&rig, is_closed(rank, round));
        else
            assert_false(is_closed(rank, round));
    }
}

static void expect_open(uint64_t round)
{
    rig_settle(&rig);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        assert_false(is_closed(rank, round));
}

/* Checks that the rank has received this number of CLOSED, and that the last one names `round`. */
static void expect_answer(uint32_t rank, int answers, uint64_t round)
{
    const struct rig_worker *w = &rig.workers[rank];
    rig_settle(&rig);
    assert_int_equal(w->closed_count, answers);
    if (answers > 0)
        assert_int_equal(w->closed[answers - 1].round, round);
    assert_int_equal(w->errors_count, 0);
}

static void leave(uint32_t rank)
{
    const struct record_leave leave = {.kind = RECORD_LEAVE};
    assert_int_equal(fabric_send(rig.workers[rank].conn, &leave, sizeof leave, NULL, 0), 0);
    rig_settle(&rig);
}

/* --- ranks without a gradient --- */

/* Rank 1 is late in round 1. */
static void make_round_1(void)
{
    end(0, 1);
    end(2, 1);
    expect_closed(1, ZERO_AND_TWO);
    end(1, 1);
    expect_answer(1, 1, 1);
    report(1, 1);
    expect_answer(1, 2, 1);
}

static void a_rank_without_a_gradient_learns_the_newest_round(void **state)
{
    start(0, false);
    make_round_1();
    end(0, 2);
    end(1, 2);
    expect_closed(2, ZERO_AND_ONE);
    stand(2, 2, RECORD_TAKES);
    expect_answer(2, 1, 2);
    report(2, 2);
    expect_answer(2, 2, 2);
    end(2, 3);
    end(0, 3);
    expect_closed(3, ZERO_AND_TWO);
}

/* The lane that closed round 2 died before any rank had its result. */
static void a_rank_without_a_gradient_announces_an_open_round_anew(void **state)
{
    start(0, true);
    stand(0, 2, RECORD_ANNOUNCE);
    stand(1, 1, RECORD_IDLE);
    stand(2, 2, RECORD_TAKES);
    expect_answer(2, 1, 1);
    expect_open(2);
    rig_say(&rig, 2,
            (struct say){.piece = HIDDEN,
                         .word = 20,
                         .round = 2,
                         .operation = RECORD_BARRIER,
                         .has_no_input = true,
                         .has_no_output = true});
    rig_until(&rig, rig.workers[0].commits_count > 0 && rig.workers[2].commits_count > 0);
    assert_int_equal(rig.workers[2].commits[0], 20);
    assert_int_equal(rig.workers[0].chosen.ranks[0], ZERO_AND_TWO);
}

/* Checks the ranks that the lane names to a rank that waits for the open round. */
static void expect_missing(uint32_t rank, uint64_t round, uint64_t ranks)
{
    const struct record_query query = {
        .kind = RECORD_QUERY, .word = (uint32_t)round, .piece = HIDDEN, .round = round};
    assert_int_equal(fabric_send(rig.workers[rank].conn, &query, sizeof query, NULL, 0), 0);
    rig_until(&rig, rig.workers[rank].missing_count == 1);
    assert_int_equal(rig.workers[rank].missing.ranks[0], ranks);
}

static void a_rank_without_a_gradient_never_counts(void **state)
{
    start(0, false);
    make_round_1();
    stand(2, 2, RECORD_TAKES);
    expect_answer(2, 1, 1);
    end(0, 2);
    expect_open(2);
    expect_missing(0, 2, 1 << 1 | 1 << 2);
    end(1, 2);
    expect_closed(2, ZERO_AND_ONE);
}

static void a_first_gradient_that_is_given_up_is_refused(void **state)
{
    start(0, false);
    rig_say(&rig, 2,
            (struct say){.piece = HIDDEN,
                         .word = 1,
                         .round = 1,
                         .operation = RECORD_BARRIER,
                         .standing = RECORD_TAKES,
                         .has_no_input = true,
                         .has_no_output = true});
    rig_until(&rig, rig.workers[2].errors_count == 1);
    assert_int_equal(rig.workers[2].error.code, -EPROTO);
}

/* --- replay --- */

static void a_round_closes_with_its_recorded_ranks_alone(void **state)
{
    start(BACKUP_TERMS_REPLAYS, false);
    replay(1, ONE_AND_TWO, 0, false);
    end(0, 1);
    end(1, 1);
    expect_open(1);
    end(2, 1);
    expect_closed(1, ONE_AND_TWO);
    assert_int_equal(rig.workers[1].chosen.ranks[0], ONE_AND_TWO);
    assert_int_equal(rig.workers[1].chosen.reason, RECORD_REASON_REPLAY);
}

static void no_round_closes_before_its_set_is_known(void **state)
{
    start(BACKUP_TERMS_REPLAYS, false);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        end(rank, 1);
    expect_open(1);
    replay(1, ZERO_AND_ONE, 0, false);
    expect_closed(1, ZERO_AND_ONE);
}

/* The recorded rank 2 has begun its next gradient after round 2. */
static void a_straggler_is_answered_after_the_recorded_round(void **state)
{
    start(BACKUP_TERMS_REPLAYS, false);
    replay(1, ZERO_AND_ONE, 0, false);
    replay(2, ZERO_AND_ONE, 1 << 2, false);
    replay(3, ALL, 0, false);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        end(rank, 1);
    expect_closed(1, ZERO_AND_ONE);
    expect_answer(2, 0, 0);
    end(0, 2);
    end(1, 2);
    expect_closed(2, ZERO_AND_ONE);
    expect_answer(2, 1, 2);
    report(2, 2);
    expect_answer(2, 2, 2);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        end(rank, 3);
    expect_closed(3, ALL);
}

static void a_round_waits_until_the_takers_of_the_round_before_have_its_results(void **state)
{
    start(BACKUP_TERMS_REPLAYS, false);
    replay(1, ZERO_AND_ONE, 1 << 2, false);
    replay(2, ZERO_AND_ONE, 0, false);
    end(0, 1);
    end(1, 1);
    expect_closed(1, ZERO_AND_ONE);
    rig.clock_ns += 3600 * NS_PER_S; /* this wait has no time limit */
    end(0, 2);
    end(1, 2);
    expect_open(2);
    end(2, 1);
    expect_answer(2, 1, 1);
    expect_open(2);
    report(2, 1);
    expect_answer(2, 2, 1);
    expect_closed(2, ZERO_AND_ONE);
}

/* A rank that fetches the sums of all rounds gets them without delay, because rounds may wait for
 * the rank. Only the last answer, after which the rank begins, is the recorded one. */
static void a_straggler_that_fetches_sums_begins_after_the_recorded_round(void **state)
{
    lag = 2;
    start(BACKUP_TERMS_REPLAYS, false);
    replay(1, ZERO_AND_ONE, 0, false);
    replay(2, ZERO_AND_ONE, 0, false);
    replay(3, ZERO_AND_ONE, 1 << 2, false);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        end(rank, 1);
    expect_answer(2, 1, 1);
    report(2, 1);
    expect_answer(2, 1, 1);
    for (uint64_t round = 2; round <= 3; round++) {
        end(0, round);
        end(1, round);
        expect_closed(round, ZERO_AND_ONE);
        expect_answer(2, (int)round, round);
        report(2, round);
    }
    expect_answer(2, 4, 3);
}

static void a_straggler_without_a_gradient_is_answered_after_the_recorded_round(void **state)
{
    start(BACKUP_TERMS_REPLAYS, false);
    replay(1, ZERO_AND_TWO, 1 << 1, false);
    replay(2, ZERO_AND_ONE, 0, false);
    replay(3, ZERO_AND_ONE, 1 << 2, false);
    make_round_1();
    stand(2, 2, RECORD_TAKES);
    expect_answer(2, 0, 0); /* the round is open */
    for (uint64_t round = 2; round <= 3; round++) {
        end(0, round);
        end(1, round);
        expect_closed(round, ZERO_AND_ONE);
        expect_answer(2, round - 2, round);
    }
}

static void after_the_last_recorded_round_the_rule_decides(void **state)
{
    start(BACKUP_TERMS_REPLAYS, false);
    replay(1, ZERO_AND_ONE, 0, true);
    end(2, 1);
    end(0, 1);
    expect_open(1);
    end(1, 1);
    expect_closed(1, ZERO_AND_ONE);
    expect_answer(2, 1, 1); /* the recording has no later round for this rank */
    report(2, 1);
    end(0, 2);
    end(2, 2);
    expect_closed(2, ZERO_AND_TWO);
    assert_int_not_equal(rig.workers[0].chosen.reason, RECORD_REASON_REPLAY);
    end(1, 2);
    expect_answer(1, 1, 2);
}

/* The former leader lane has closed round 2 and died. Rank 2 has reported the results of round 1,
 * and has no answer. */
static void a_new_leader_lane_goes_on_with_the_recording(void **state)
{
    start(BACKUP_TERMS_REPLAYS, true);
    end(1, 3);
    stand(2, 1, RECORD_IDLE);
    report(2, 1);
    expect_answer(2, 0, 0);
    replay(1, ZERO_AND_ONE, 1 << 2, false);
    replay(2, ZERO_AND_ONE, 0, false);
    replay(3, ALL, 0, false);
    end(0, 3);
    expect_answer(2, 1, 1);
    expect_open(3);
    end(2, 3);
    expect_closed(3, ALL);
}

/* Rank 0 knows of a loss that the former lane reported before it died (L80). */
static void a_failure_answers_the_reports_of_takers(void **state)
{
    start(BACKUP_TERMS_REPLAYS, true);
    stand(2, 1, RECORD_IDLE);
    report(2, 1);
    expect_answer(2, 0, 0);
    rig_say(&rig, 0,
            (struct say){.piece = HIDDEN,
                         .word = 2,
                         .round = 2,
                         .operation = RECORD_BARRIER,
                         .standing = RECORD_FAILED,
                         .has_no_input = true,
                         .has_no_output = true});
    rig_until(&rig, rig_says(&rig.workers[2], -EOWNERDEAD, "rank 0 knows of a result"));
    report(2, 1);
    rig_until(&rig, rig.workers[2].errors_count == 2);
}

static void a_new_leader_lane_long_after_the_recording_uses_the_rule(void **state)
{
    start(BACKUP_TERMS_REPLAYS, true);
    stand(0, 58, RECORD_IDLE);
    end(1, 60);
    end(2, 60);
    expect_open(60);
    replay(3, ZERO_AND_ONE, 0, true);
    expect_closed(60, ONE_AND_TWO);
}

static void a_rank_of_a_recorded_set_that_has_left_fails_the_round(void **state)
{
    start(BACKUP_TERMS_REPLAYS, false);
    replay(1, ONE_AND_TWO, 0, false);
    leave(2);
    end(0, 1);
    end(1, 1);
    rig_until(&rig, rig_says(&rig.workers[1], -EPIPE, "rank 2 has left job"));
}

static void a_round_whose_set_left_with_rank_0_fails(void **state)
{
    start(BACKUP_TERMS_REPLAYS, false);
    end(1, 1);
    end(2, 1);
    leave(0);
    rig_until(&rig, rig_says(&rig.workers[1], -EPIPE, "rank 0 has left job"));
}

static void only_rank_0_sends_takers(void **state)
{
    start(BACKUP_TERMS_REPLAYS, false);
    send_takers(1, 1, 0, false);
    rig_until(&rig, rig.workers[1].is_closed && rig.failures == 1);
}

/* A job without a replay ignores takers. */
static void takers_without_a_replay_change_nothing(void **state)
{
    start(0, false);
    send_takers(0, 1, 1 << 2, true);
    rig_settle(&rig);
    end(0, 1);
    end(1, 1);
    expect_closed(1, ZERO_AND_ONE);
}

/* --- recording --- */

static void rank_0_receives_every_set_in_order(void **state)
{
    const struct rig_worker *zero = &rig.workers[0];
    start(BACKUP_TERMS_RECORDS, false);
    for (uint64_t round = 1; round <= 3; round++) {
        rig.clock_ns += SPAN_NS;
        end(0, round);
        end(1, round);
        expect_closed(round, ZERO_AND_ONE);
        rig_until(&rig, zero->passed_count == (int)round);
        assert_int_equal(zero->passed.round, round);
        assert_int_equal(zero->passed.ranks[0], ZERO_AND_ONE);
        assert_int_equal(zero->passed.form, RECORD_FORM_RANKS);
    }
    rig_until(&rig, rig.workers[2].passed_count > 0);
}

static void rank_0_receives_the_round_after_which_a_straggler_begins(void **state)
{
    const struct rig_worker *zero = &rig.workers[0];
    start(BACKUP_TERMS_RECORDS, false);
    end(0, 1);
    end(1, 1);
    expect_closed(1, ZERO_AND_ONE);
    end(2, 1);
    expect_answer(2, 1, 1);
    assert_int_equal(zero->passed_count, 1);
    report(2, 1);
    expect_answer(2, 2, 1);
    assert_int_equal(zero->passed_count, 2);
    assert_int_equal(zero->passed.form, RECORD_FORM_TAKERS);
    assert_int_equal(zero->passed.round, 1);
    assert_int_equal(zero->passed.ranks[0], 1 << 2);
    report(2, 1); /* repeated after the loss of a connection */
    assert_int_equal(zero->passed_count, 2);
}

/* Rank 0 receives nothing. Rounds wait before a set would be replaced that rank 0 lacks. */
static void rounds_wait_for_a_rank_0_that_receives_no_sets(void **state)
{
    uint64_t round = 0;
    start(BACKUP_TERMS_RECORDS, false);
    if (strcmp(kind, "ofi") == 0)
        return; /* the buffers of the kernel have room for too many records */
    rig.workers[0].is_stopped = true;
    for (bool is_open = false; !is_open && round < 100000;) {
        round++;
        end(1, round);
        end(2, round);
        rig_settle(&rig);
        is_open = !is_closed(1, round);
    }
    assert_int_not_equal(round, 100000);
    rig.workers[0].is_stopped = false;
    /* the lane tries again after some time */
    rig_until(&rig, (rig.clock_ns += NS_PER_MS, is_closed(1, round)));
    rig_until(&rig, (rig.clock_ns += NS_PER_MS, rig.workers[0].passed.round == round));
    assert_int_equal(rig.workers[0].passed_count, round);
}

static void rounds_go_on_after_rank_0_has_left(void **state)
{
    start(BACKUP_TERMS_RECORDS, false);
    leave(0);
    for (uint64_t round = 1; round <= 2 * CHOICES_PER_JOB; round++) {
        end(1, round);
        end(2, round);
        expect_closed(round, ONE_AND_TWO);
    }
}

#define CASE(test) cmocka_unit_test_teardown(test, stop)

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "shm";
    const struct CMUnitTest tests[] = {
        CASE(a_round_closes_with_its_recorded_ranks_alone),
        CASE(no_round_closes_before_its_set_is_known),
        CASE(a_rank_without_a_gradient_learns_the_newest_round),
        CASE(a_rank_without_a_gradient_announces_an_open_round_anew),
        CASE(a_rank_without_a_gradient_never_counts),
        CASE(a_first_gradient_that_is_given_up_is_refused),
        CASE(a_straggler_is_answered_after_the_recorded_round),
        CASE(a_straggler_without_a_gradient_is_answered_after_the_recorded_round),
        CASE(a_round_waits_until_the_takers_of_the_round_before_have_its_results),
        CASE(a_straggler_that_fetches_sums_begins_after_the_recorded_round),
        CASE(after_the_last_recorded_round_the_rule_decides),
        CASE(a_new_leader_lane_goes_on_with_the_recording),
        CASE(a_failure_answers_the_reports_of_takers),
        CASE(a_new_leader_lane_long_after_the_recording_uses_the_rule),
        CASE(a_rank_of_a_recorded_set_that_has_left_fails_the_round),
        CASE(a_round_whose_set_left_with_rank_0_fails),
        CASE(only_rank_0_sends_takers),
        CASE(takers_without_a_replay_change_nothing),
        CASE(rank_0_receives_every_set_in_order),
        CASE(rank_0_receives_the_round_after_which_a_straggler_begins),
        CASE(rounds_wait_for_a_rank_0_that_receives_no_sets),
        CASE(rounds_go_on_after_rank_0_has_left),
    };
    return cmocka_run_group_tests_name(kind, tests, NULL, NULL);
}
