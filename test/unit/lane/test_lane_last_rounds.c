/* Tests rounds that a leaving rank of an elastic job has reported as committed (A44 of svc/lane):
 * if a remaining rank announces such a round again, its result stays. Also tests commits that a
 * rank needs in order to report its last round. */
#include "svc/lane/move/regroup.h"
#include "svc/lane/move/release.h"
#include "test/unit/lane/lane_rig.h"
#include "test/unit/skip.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

static void start_job(unsigned rule, bool is_elastic)
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
    if (is_elastic)
        lane_set_elastic(rig.lane, RIG_JOB);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        rig_connect(&rig, rank, RIG_JOB, rank);
    rig.count = RANKS;
}

static void start(unsigned rule) { start_job(rule, true); }

static bool is_mapped(void) { return strcmp(kind, "shm") == 0; }

static uint32_t word_of(uint64_t round) { return epoch * 1000 + (uint32_t)round; }

static void say(uint32_t rank, uint64_t round, uint8_t operation, uint8_t standing)
{
    bool is_taken = operation == RECORD_BROADCAST && rank > 0, is_idle = standing == RECORD_IDLE;
    rig_say(&rig, rank,
            (struct say){.piece = piece,
                         .word = word_of(round),
                         .round = round,
                         .elements = is_idle ? 0 : ELEMENTS,
                         .operation = operation,
                         .standing = standing,
                         .epoch = epoch,
                         .has_no_input = is_taken || is_idle,
                         .has_no_output = is_idle || (operation == RECORD_BROADCAST && rank == 0),
                         /* the lane reads an inline payload, but not the memory of a stopped
                          * rank */
                         .is_inline = standing == RECORD_ANNOUNCE && !is_taken && !is_mapped()});
}

static void announce(uint32_t rank, uint64_t round, uint8_t operation, float value)
{
    for (uint64_t e = 0; e < ELEMENTS; e++)
        rig_input(&rig, rank, 0)[e] = value;
    say(rank, round, operation, RECORD_ANNOUNCE);
}

static bool has_commit(uint32_t rank, uint64_t round)
{
    const struct rig_worker *w = &rig.workers[rank];
    return w->commits_count > 0 && w->commits[w->commits_count - 1] == word_of(round);
}

static void expect(uint32_t rank, uint64_t round, float value)
{
    rig_until(&rig, has_commit(rank, round));
    assert_int_equal(rig.workers[rank].errors_count, 0);
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

/* ---- stopped ranks ---- */

static void stop_rank(uint32_t rank, bool is_stopped) { rig.workers[rank].is_stopped = is_stopped; }

/* The ranks 1 and 2 have the result of round 1. Over a network the round is not committed, because
 * rank 0 does not run. */
static void begin_round_of_a_stopped_rank(void)
{
    announce(0, 1, RECORD_SUM, 2);
    rig_settle(&rig);
    stop_rank(0, true);
    announce(1, 1, RECORD_SUM, 2);
    announce(2, 1, RECORD_SUM, 2);
    rig_until(&rig, rig.workers[1].words_count == 1 && rig.workers[2].words_count == 1);
}

static void a_rank_in_the_next_round_gets_the_commit_of_an_elastic_job(void **state)
{
    start(0);
    begin_round_of_a_stopped_rank();
    announce(2, 2, RECORD_SUM, 7);
    rig_settle(&rig);
    assert_int_equal(rig.workers[2].commits_count, is_mapped());
    stop_rank(0, false);
    expect(2, 1, 6);
    leave(2, 1); /* the rank may report the round because it has the commit */
    announce(1, 1, RECORD_SUM, 10);
    expect(1, 1, 6);
}

static void a_rank_in_the_next_round_needs_no_commit_in_a_job_of_fixed_ranks(void **state)
{
    start_job(0, false);
    if (is_mapped())
        skip_because("over shm a round is committed when the first rank has its result");
    begin_round_of_a_stopped_rank();
    announce(2, 2, RECORD_SUM, 7);
    rig_settle(&rig);
    stop_rank(0, false);
    expect(1, 1, 6);
    rig_settle(&rig);
    assert_int_equal(rig.workers[2].commits_count, 0);
}

/* Handles `count` events of a worker that is otherwise stopped. */
static void take_events(uint32_t rank, int count)
{
    struct rig_worker *w = &rig.workers[rank];
    for (int taken = 0; taken < count;) {
        struct fabric_event event;
        if (fabric_poll(w->fabric, &event, 1) == 0)
            continue;
        w->words_count += event.kind == FABRIC_EVENT_WORD;
        if (event.kind == FABRIC_EVENT_MESSAGE)
            fabric_message_done(event.conn, event.data);
        taken++;
    }
}

/* Fills the lane's queue of records to a stopped rank with answers to its queries. */
static void fill_queue(uint32_t rank)
{
    const struct record_query query = {.kind = RECORD_QUERY, .word = 1, .piece = piece, .round = 1};
    stop_rank(rank, true);
    for (int k = 0; k < 4000; k++) {
        while (fabric_send(rig.workers[rank].conn, &query, sizeof query, NULL, 0) == -EAGAIN)
            (void)rig_turn(&rig);
    }
    rig_settle(&rig);
}

static void a_commit_that_was_not_sent_in_time_does_not_refuse_a_round(void **state)
{
    start(0);
    if (!is_mapped())
        skip_because("over ofi the length of a queue depends on the provider");
    fill_queue(2);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        announce(rank, 1, RECORD_SUM, 2);
    while (!has_commit(0, 1)) {
        take_events(2, 1); /* frees space for one record: the word */
        rig_settle(&rig);
    }
    for (uint32_t rank = 0; rank < RANKS; rank++)
        announce(rank, 2, RECORD_SUM, 3);
    rig_settle(&rig);
    announce(2, 3, RECORD_SUM, 4);
    rig_settle(&rig);
    stop_rank(2, false);
    expect(0, 2, 9);
    announce(0, 3, RECORD_SUM, 4);
    announce(1, 3, RECORD_SUM, 4);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        expect(rank, 3, 12);
}

static void a_reported_round_needs_no_report_of_a_stopped_rank(uint8_t standing)
{
    start(0);
    do_round(1, RECORD_SUM, 3, 2, 6);
    leave(2, 1);
    stop_rank(0, true);
    say(1, 1, RECORD_SUM, standing);
    expect(1, 1, 6);
    announce(1, 2, RECORD_SUM, 1);
    rig_settle(&rig);
    assert_false(has_commit(1, 2));
    stop_rank(0, false);
    do_round(1, RECORD_SUM, 1, 10, 6);
    announce(0, 2, RECORD_SUM, 1);
    for (uint32_t rank = 0; rank < 2; rank++)
        expect(rank, 2, 2);
}

static void a_rank_that_repeats_a_reported_round_does_not_wait_for_a_stopped_rank(void **state)
{
    a_reported_round_needs_no_report_of_a_stopped_rank(RECORD_ANNOUNCE);
}

static void a_rank_that_holds_a_reported_round_does_not_wait_for_a_stopped_rank(void **state)
{
    a_reported_round_needs_no_report_of_a_stopped_rank(RECORD_HOLDS);
}

static void a_rank_beyond_a_reported_round_gets_its_commit_before_a_stopped_rank_runs(void **state)
{
    start(0);
    do_round(1, RECORD_SUM, 3, 2, 6);
    leave(2, 1);
    stop_rank(0, true);
    say(1, 1, RECORD_SUM, RECORD_KEEPS);
    announce(1, 2, RECORD_SUM, 1);
    expect(1, 1, 6);
    stop_rank(0, false);
    announce(0, 1, RECORD_SUM, 10);
    expect(0, 1, 6);
    announce(0, 2, RECORD_SUM, 1);
    for (uint32_t rank = 0; rank < 2; rank++)
        expect(rank, 2, 2);
}

/* Each rank announces the reported round again. None of them has received the COMMIT of the
 * previous round. */
static void a_reported_round_is_not_repeated_by_ranks_that_keep_the_round_before(void **state)
{
    start(0);
    do_round(1, RECORD_SUM, 3, 2, 6);
    do_round(2, RECORD_SUM, 3, 3, 9);
    leave(2, 2);
    for (uint32_t rank = 0; rank < 2; rank++) {
        say(rank, 1, RECORD_SUM, RECORD_KEEPS);
        announce(rank, 2, RECORD_SUM, 10);
    }
    for (uint32_t rank = 0; rank < 2; rank++)
        expect(rank, 2, 9);
    do_round(3, RECORD_SUM, 2, 1, 2);
}

static void a_reported_round_stays_committed_when_its_rank_is_gone(void **state)
{
    start(0);
    do_round(1, RECORD_SUM, 3, 2, 6);
    leave(2, 1);
    stop_rank(0, true);
    announce(1, 1, RECORD_SUM, 10);
    expect(1, 1, 6);
    announce(1, 2, RECORD_SUM, 1);
    rig_settle(&rig);
    stop_rank(0, false);
    leave(1, 1); /* rank 0 has sent no report in the former set */
    do_round(1, RECORD_SUM, 1, 10, 6);
    do_round(2, RECORD_SUM, 1, 3, 3);
}

static void a_rank_gets_the_commit_of_the_round_that_it_holds_when_another_rank_has_it(void **state)
{
    start(0);
    do_round(1, RECORD_SUM, 3, 2, 6);
    leave(2, UINT64_MAX);
    say(1, 1, RECORD_SUM, RECORD_KEEPS);
    announce(1, 2, RECORD_SUM, 1);
    rig_settle(&rig);
    assert_false(has_commit(1, 1));
    say(0, 1, RECORD_SUM, RECORD_IDLE);
    expect(1, 1, 6);
    announce(0, 2, RECORD_SUM, 1);
    for (uint32_t rank = 0; rank < 2; rank++)
        expect(rank, 2, 2);
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
        CASE(a_rank_in_the_next_round_gets_the_commit_of_an_elastic_job),
        CASE(a_rank_in_the_next_round_needs_no_commit_in_a_job_of_fixed_ranks),
        CASE(a_commit_that_was_not_sent_in_time_does_not_refuse_a_round),
        CASE(a_rank_that_repeats_a_reported_round_does_not_wait_for_a_stopped_rank),
        CASE(a_rank_that_holds_a_reported_round_does_not_wait_for_a_stopped_rank),
        CASE(a_rank_beyond_a_reported_round_gets_its_commit_before_a_stopped_rank_runs),
        CASE(a_reported_round_is_not_repeated_by_ranks_that_keep_the_round_before),
        CASE(a_reported_round_stays_committed_when_its_rank_is_gone),
        CASE(a_rank_gets_the_commit_of_the_round_that_it_holds_when_another_rank_has_it),
    };
    return cmocka_run_group_tests_name(kind, tests, NULL, NULL);
}
