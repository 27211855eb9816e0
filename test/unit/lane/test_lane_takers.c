/* Tests the leader lane of a job with backup workers (A87, W22). Round r + 2 waits for a rank that
 * still fetches the result of round r. A rank that reports a fetched result gets an answer. */
#include "svc/base/clock.h"
#include "svc/lane/move/moved_state.h"
#include "svc/lane/move/release.h"
#include "svc/wire/terms.h"
#include "test/unit/lane/lane_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 3
#define LATE 2 /* the rank outside each set */
#define HIDDEN 1
#define BEGIN_NS (100 * NS_PER_S)
#define SPAN_NS (50 * NS_PER_MS) /* time between two closes */

static const char *kind;
static struct rig rig;
static uint32_t lag; /* lag of the job in rounds; 0: the lanes of the job update parameters */

static int stop(void **state)
{
    rig_stop(&rig);
    lag = 0;
    return 0;
}

static void place(bool recovering)
{
    const struct lane_piece hidden = {
        .id = HIDDEN,
        .terms = {.quorum = QUORUM_FIRST, .bound = 2, .role = LEADS_ROUNDS, .lag = lag}};
    rig_place_piece(&rig, RANKS, hidden, recovering);
}

static void start(bool recovering)
{
    rig_start(&rig, kind);
    rig.clock_ns = BEGIN_NS;
    place(recovering);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        rig_connect(&rig, rank, RIG_JOB, rank);
    rig.count = RANKS;
}

static void stand(uint32_t rank, uint64_t round, uint8_t standing)
{
    rig_say(&rig, rank,
            (struct say){.piece = HIDDEN,
                         .word = (uint32_t)round,
                         .round = round,
                         .operation = RECORD_BARRIER,
                         .standing = standing,
                         .has_no_input = true,
                         .has_no_output = true});
}

static void end(uint32_t rank, uint64_t round) { stand(rank, round, RECORD_ANNOUNCE); }

static void report(uint32_t rank, uint64_t round)
{
    const struct record_landed landed = {.kind = RECORD_LANDED, .piece = HIDDEN, .round = round};
    assert_int_equal(fabric_send(rig.workers[rank].conn, &landed, sizeof landed, NULL, 0), 0);
}

static bool has_commit(uint32_t rank, uint64_t round)
{
    const struct rig_worker *w = &rig.workers[rank];
    return w->commits_count > 0 && w->commits[w->commits_count - 1] == round;
}

static void expect_closed(uint64_t round)
{
    rig_until(&rig, has_commit(0, round) && has_commit(1, round));
}

static void announce_two(uint64_t round)
{
    end(0, round);
    end(1, round);
}

/* Runs a round of ranks 0 and 1, which closes at once. */
static void close_round(uint64_t round)
{
    rig.clock_ns += SPAN_NS;
    announce_two(round);
    expect_closed(round);
}

static void expect_waits(uint64_t round, uint64_t until_ns)
{
    rig_settle(&rig);
    assert_false(has_commit(0, round) || has_commit(1, round));
    assert_int_equal(lane_next_ns(rig.lane), until_ns);
}

/* Checks that the late rank has received `answers` answers, and that the last answer names
 * `round`. */
static void expect_answer(int answers, uint64_t round)
{
    const struct rig_worker *w = &rig.workers[LATE];
    rig_until(&rig, w->closed_count == answers);
    assert_int_equal(w->closed[answers - 1].round, round);
    assert_int_equal(w->words_count, 0); /* a word would make a round wait for a stopped rank */
    assert_int_equal(w->errors_count, 0);
}

/* Moves the piece after `round`. The new owner is the same lane. */
static void move(uint64_t round)
{
    static char moved[LANE_STATE_HEAD_BYTES];
    const uint32_t piece = HIDDEN;
    assert_int_equal(lane_release(rig.lane, RIG_JOB, &piece, 1), 0);
    int64_t bytes = lane_state_read(rig.lane, RIG_JOB, HIDDEN, 0, moved, sizeof moved);
    assert_true(bytes > 0);
    lane_drop(rig.lane, RIG_JOB, &piece, 1);
    place(true);
    assert_int_equal(lane_state_put(rig.lane, RIG_JOB, HIDDEN, 0, moved, (size_t)bytes), 0);
    assert_int_equal(lane_install(rig.lane, RIG_JOB, &piece, &round, 1), 0);
}

/* The late rank starts to fetch the result of round 1. Then round 2 closes. */
static void begin_take(void)
{
    start(false);
    close_round(1);
    end(LATE, 1);
    expect_answer(1, 1);
    close_round(2);
}

/* --- the wait --- */

static void a_round_waits_for_a_rank_that_fetches_the_result_of_two_rounds_before(void **state)
{
    begin_take();
    rig.clock_ns += SPAN_NS;
    announce_two(3);
    expect_waits(3, rig.clock_ns + 2 * SPAN_NS);
    report(LATE, 1);
    expect_closed(3);
    assert_int_equal(lane_next_ns(rig.lane), 0);
}

static void a_stopped_rank_delays_one_round_for_twice_the_usual_time(void **state)
{
    begin_take();
    uint64_t until_ns = rig.clock_ns + 3 * SPAN_NS;
    rig.clock_ns += SPAN_NS;
    announce_two(3);
    expect_waits(3, until_ns);
    rig.clock_ns = until_ns - 1;
    expect_waits(3, until_ns);
    rig.clock_ns = until_ns;
    expect_closed(3);
    for (uint64_t round = 4; round < 10; round++)
        close_round(round);
}

static void a_rank_that_was_outrun_is_waited_for_longer(void **state)
{
    begin_take();
    announce_two(3);
    rig_settle(&rig);
    rig.clock_ns += 2 * SPAN_NS;
    expect_closed(3);
    report(LATE, RECORD_ROUND_NONE);
    expect_answer(2, 3);
    close_round(4);
    announce_two(5);
    expect_waits(5, rig.clock_ns + 4 * SPAN_NS);
    report(LATE, 3); /* the rank has the result, so the next wait is short again */
    expect_answer(3, 3);
    expect_closed(5);
    end(LATE, 4);
    expect_answer(4, 5);
    close_round(6);
    announce_two(7);
    expect_waits(7, rig.clock_ns + 2 * SPAN_NS);
}

static void a_pause_of_all_ranks_makes_no_wait_longer(void **state)
{
    start(false);
    for (uint64_t round = 1; round <= 4; round++) {
        rig.clock_ns += round == 3 ? 3600 * NS_PER_S : 0;
        close_round(round);
    }
    end(LATE, 1);
    expect_answer(1, 4);
    close_round(5);
    announce_two(6);
    expect_waits(6, rig.clock_ns + 2 * SPAN_NS);
}

static void a_rank_that_has_left_is_not_waited_for(void **state)
{
    const struct record_leave leave = {.kind = RECORD_LEAVE};
    begin_take();
    announce_two(3);
    expect_waits(3, rig.clock_ns + 2 * SPAN_NS);
    assert_int_equal(fabric_send(rig.workers[LATE].conn, &leave, sizeof leave, NULL, 0), 0);
    rig_settle(&rig);
    expect_closed(3);
}

static void a_dropped_piece_waits_no_longer(void **state)
{
    const uint32_t piece = HIDDEN;
    begin_take();
    announce_two(3);
    expect_waits(3, rig.clock_ns + 2 * SPAN_NS);
    lane_drop(rig.lane, RIG_JOB, &piece, 1);
    assert_int_equal(lane_next_ns(rig.lane), 0);
}

/* --- the wait of sums --- */

/* Rank LATE is in no set. Runs the job up to the round that waits for this rank. */
static void begin_lagging(void)
{
    lag = 2;
    start(false);
    close_round(1);
    close_round(2);
    rig.clock_ns += 3600 * NS_PER_S; /* this wait has no time limit */
    announce_two(3);
    expect_waits(3, 0);
}

static void no_rank_is_further_behind_than_the_lag(void **state)
{
    begin_lagging();
    end(LATE, 1); /* the rank has no result yet */
    expect_waits(3, 0);
    expect_answer(1, 2);
    report(LATE, 1);
    expect_closed(3);
    expect_answer(2, 2); /* the rank must fetch one more result */
    announce_two(4);
    expect_waits(4, 0);
    report(LATE, 2);
    expect_closed(4);
    expect_answer(3, 3);
}

static void a_rank_that_announces_holds_all_rounds_before(void **state)
{
    lag = 2;
    start(false);
    end(LATE, 1);
    end(0, 1);
    rig_until(&rig, has_commit(LATE, 1) && has_commit(0, 1));
    end(1, 1);
    rig_until(&rig, rig.workers[1].closed_count == 1);
    report(1, 1);
    close_round(2);
    /* rank LATE was in the set of round 1, so it needs no stored result of round 1 */
    close_round(3);
    announce_two(4);
    expect_waits(4, 0);
    end(LATE, 2);
    expect_waits(4, 0);
    report(LATE, 2);
    expect_closed(4);
}

static void a_rank_that_has_left_may_be_behind(void **state)
{
    const struct record_leave leave = {.kind = RECORD_LEAVE};
    begin_lagging();
    assert_int_equal(fabric_send(rig.workers[LATE].conn, &leave, sizeof leave, NULL, 0), 0);
    expect_closed(3);
}

static void a_new_owner_gets_the_rounds_that_ranks_hold(void **state)
{
    begin_lagging();
    move(2);
    stand(LATE, 2, RECORD_IDLE); /* the rank reports a standing of the hidden tensor only */
    announce_two(3);
    expect_waits(3, 0);
    report(LATE, 1);
    expect_closed(3);
    announce_two(4);
    expect_waits(4, 0);
}

/* --- a new leader lane --- */

/* Rank 1 was in the set, and the lane died before it had sent the set to this rank. */
static void a_new_leader_lane_sends_the_set_ahead_of_the_commit(void **state)
{
    const struct record_chosen chosen = {.kind = RECORD_CHOSEN, .round = 1, .ranks = {3}};
    start(true);
    assert_int_equal(fabric_send(rig.workers[0].conn, &chosen, sizeof chosen, NULL, 0), 0);
    stand(0, 1, RECORD_IDLE);
    end(1, 1);
    stand(LATE, 0, RECORD_IDLE);
    rig_until(&rig, has_commit(1, 1));
    assert_int_equal(rig.workers[1].chosen_count, 1);
    assert_int_equal(rig.workers[1].chosen.round, 1);
    assert_int_equal(rig.workers[1].chosen.ranks[0], 3);
    /* rank 0 itself has sent the set to the lane */
    assert_int_equal(rig.workers[0].chosen_count, 0);
}

static void choose_two(uint64_t round)
{
    const struct record_chosen chosen = {.kind = RECORD_CHOSEN, .round = round, .ranks = {3}};
    assert_int_equal(fabric_send(rig.workers[0].conn, &chosen, sizeof chosen, NULL, 0), 0);
}

/* The former leader lane has sent rank 0 a set without rank LATE. The new leader lane closes the
 * same round with a set that includes rank LATE. */
static void a_rank_outside_a_known_set_lacks_the_result(void **state)
{
    lag = 1;
    start(true);
    choose_two(1);
    end(0, 1);
    end(1, 1);
    end(LATE, 1);
    expect_closed(1);
    announce_two(2);
    expect_waits(2, 0);
    report(LATE, 1);
    expect_closed(2);
}

static void a_round_waits_for_a_rank_outside_a_known_set(void **state)
{
    start(true);
    choose_two(1);
    end(0, 1);
    end(1, 1);
    end(LATE, 1);
    expect_closed(1);
    close_round(2);
    announce_two(3);
    rig_settle(&rig);
    assert_false(has_commit(0, 3) || has_commit(1, 3));
    report(LATE, 1);
    expect_closed(3);
}

/* Rank 0 has the word of the hidden tensor, and waits for the commit of that round. */
static void a_rank_with_the_word_of_a_round_delays_no_new_leader_lane(void **state)
{
    lag = 2;
    start(true);
    choose_two(5);
    stand(0, 5, RECORD_HOLDS);
    end(1, 5);
    end(LATE, 5);
    expect_closed(5);
}

/* Rank 1 was in the set of round 1, and reports this round to a new owner after round `last`. */
static void report_round_1_behind(uint64_t last, uint8_t standing)
{
    const struct rig_worker *w = &rig.workers[1];
    lag = (uint32_t)last - 1;
    start(false);
    close_round(1);
    for (uint64_t round = 2; round <= last; round++) {
        rig.clock_ns += SPAN_NS;
        end(0, round);
        end(LATE, round);
        rig_until(&rig, has_commit(0, round) && has_commit(LATE, round));
    }
    move(last);
    stand(1, 1, standing);
    rig_until(&rig, w->commits_count == 2 || w->closed_count > 0 || w->errors_count > 0);
    assert_true(w->commits_count == 2 && has_commit(1, 1));
    assert_int_equal(w->chosen.round, 1); /* no later set has replaced the set of round 1 */
}

static void a_rank_of_an_older_set_takes_no_stored_result(void **state)
{
    report_round_1_behind(3, RECORD_ANNOUNCE);
    stop(state);
    report_round_1_behind(3, RECORD_HOLDS);
}

static void a_leader_lane_knows_a_set_as_long_as_a_rank_may_be_behind(void **state)
{
    report_round_1_behind(TERMS_LAG_MAX + 1, RECORD_ANNOUNCE);
    stop(state);
    report_round_1_behind(TERMS_LAG_MAX + 1, RECORD_HOLDS);
}

/* --- the answer --- */

static void a_rank_fetches_one_newer_result_and_then_begins_its_round(void **state)
{
    begin_take();
    report(LATE, 1);
    expect_answer(2, 2);
    close_round(3);
    report(LATE, 2);
    expect_answer(3, 2);
    close_round(4);
    close_round(5); /* no rank fetches a result at this point */
}

static void a_rank_with_the_newest_round_begins(void **state)
{
    start(false);
    close_round(1);
    end(LATE, 1);
    expect_answer(1, 1);
    report(LATE, 1);
    expect_answer(2, 1);
    assert_int_equal(rig.workers[LATE].chosen.round, 1);
    end(LATE, 2);
    end(0, 2);
    rig_until(&rig, has_commit(LATE, 2) && has_commit(0, 2));
}

static void a_new_leader_lane_answers_once_it_has_the_round(void **state)
{
    start(true);
    stand(LATE, 4, RECORD_IDLE);
    report(LATE, 4);
    rig_settle(&rig);
    assert_int_equal(rig.workers[LATE].closed_count, 0);
    stand(0, 5, RECORD_IDLE);
    stand(1, 5, RECORD_IDLE);
    expect_answer(1, 5);
}

static void a_wait_goes_on_at_a_new_owner(void **state)
{
    begin_take();
    move(2);
    stand(LATE, 1, RECORD_IDLE);
    announce_two(3);
    expect_waits(3, rig.clock_ns + 2 * SPAN_NS);
    report(LATE, 1);
    expect_closed(3);
    expect_answer(2, 2);
}

static void a_moved_number_out_of_bounds_is_refused(void **state)
{
    static char moved[LANE_STATE_HEAD_BYTES];
    const uint32_t piece = HIDDEN;
    begin_take();
    assert_int_equal(lane_release(rig.lane, RIG_JOB, &piece, 1), 0);
    int64_t bytes = lane_state_read(rig.lane, RIG_JOB, HIDDEN, 0, moved, sizeof moved);
    /* the last numbers of the state are the usual time and one round for each rank */
    for (int64_t i = 0; i <= RANKS; i++) {
        char bad[LANE_STATE_HEAD_BYTES];
        memcpy(bad, moved, sizeof bad);
        bad[bytes - 1 - 8 * i] = (char)0xff;
        lane_drop(rig.lane, RIG_JOB, &piece, 1);
        place(true);
        assert_int_equal(lane_state_put(rig.lane, RIG_JOB, HIDDEN, 0, bad, (size_t)bytes),
                         -EBADMSG);
    }
}

/* --- memory --- */

static void the_nth_allocation_fails_and_leaves_none_behind(void **state)
{
    const struct backup_terms terms = {
        .rule = BACKUP_TERMS_ADASYNC, .k = 2, .sets = BACKUP_TERMS_RECORDS | BACKUP_TERMS_REPLAYS};
    const struct lane_piece pieces[] = {
        {.id = HIDDEN,
         .dtype = REDUCE_F32,
         .tensor = "hidden",
         .terms = {.quorum = QUORUM_FIRST, .bound = 2, .role = LEADS_ROUNDS},
         .backup = &terms},
        {.id = HIDDEN + 1,
         .dtype = REDUCE_F32,
         .elements = 1000,
         .tensor = "w",
         .terms = {.quorum = QUORUM_CHOSEN, .rule = UPDATE_ADAM, .role = FOLLOWS_ROUNDS}}};
    uint64_t bytes = 0, limit, failures = 0;
    rig_start(&rig, kind);
    for (uint64_t most = 64;; most += 64) {
        lane_set_memory_limit(rig.lane, most);
        int error = lane_place(rig.lane, RIG_JOB, "job", RANKS, 1, false, pieces, 2);
        if (error == 0)
            break;
        assert_int_equal(error, -ENOSPC);
        lane_memory(rig.lane, &bytes, &limit);
        assert_int_equal(bytes, 0);
        failures++;
    }
    lane_memory(rig.lane, &bytes, &limit);
    assert_true(failures > 100 && bytes <= limit);
    lane_drop(rig.lane, RIG_JOB, NULL, 0);
    rig_settle(&rig);
    lane_memory(rig.lane, &bytes, &limit);
    assert_int_equal(bytes, 0);
}

/* No correct worker sends such a report. The lane must not search for an announcement of this
 * rank. */
static void a_report_without_an_announcement_gets_its_answer_with_the_first_one(void **state)
{
    const struct rig_worker *late = &rig.workers[LATE];
    start(false);
    report(LATE, RECORD_ROUND_NONE);
    close_round(1);
    rig_settle(&rig);
    assert_int_equal(late->closed_count, 0);
    end(LATE, 1);
    rig_until(&rig, late->closed_count > 0);
    assert_int_equal(late->closed[0].round, 1);
    assert_int_equal(late->errors_count, 0);
}

static void a_report_of_a_round_that_is_open_cuts_its_sender_off(void **state)
{
    start(false);
    close_round(1);
    report(LATE, 2);
    rig_until(&rig, rig.workers[LATE].is_closed && rig.failures == 1);
}

#define CASE(test) cmocka_unit_test_teardown(test, stop)

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "shm";
    const struct CMUnitTest tests[] = {
        CASE(a_round_waits_for_a_rank_that_fetches_the_result_of_two_rounds_before),
        CASE(a_stopped_rank_delays_one_round_for_twice_the_usual_time),
        CASE(a_rank_that_was_outrun_is_waited_for_longer),
        CASE(a_pause_of_all_ranks_makes_no_wait_longer),
        CASE(a_rank_that_has_left_is_not_waited_for),
        CASE(a_dropped_piece_waits_no_longer),
        CASE(no_rank_is_further_behind_than_the_lag),
        CASE(a_rank_that_announces_holds_all_rounds_before),
        CASE(a_rank_that_has_left_may_be_behind),
        CASE(a_new_owner_gets_the_rounds_that_ranks_hold),
        CASE(a_new_leader_lane_sends_the_set_ahead_of_the_commit),
        CASE(a_rank_outside_a_known_set_lacks_the_result),
        CASE(a_round_waits_for_a_rank_outside_a_known_set),
        CASE(a_rank_with_the_word_of_a_round_delays_no_new_leader_lane),
        CASE(a_rank_of_an_older_set_takes_no_stored_result),
        CASE(a_leader_lane_knows_a_set_as_long_as_a_rank_may_be_behind),
        CASE(a_rank_fetches_one_newer_result_and_then_begins_its_round),
        CASE(a_rank_with_the_newest_round_begins),
        CASE(a_new_leader_lane_answers_once_it_has_the_round),
        CASE(a_wait_goes_on_at_a_new_owner),
        CASE(a_moved_number_out_of_bounds_is_refused),
        CASE(the_nth_allocation_fails_and_leaves_none_behind),
        CASE(a_report_without_an_announcement_gets_its_answer_with_the_first_one),
        CASE(a_report_of_a_round_that_is_open_cuts_its_sender_off),
    };
    return cmocka_run_group_tests_name(kind, tests, NULL, NULL);
}
