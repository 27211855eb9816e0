/* Tests the rule that closes rounds on the leader lane of a job with backup workers (A96), on a
 * virtual clock: which events the lane passes to the rule, and when the lane closes a round.
 * test/unit/packer/ tests the rules themselves. */
#include "svc/base/clock.h"
#include "svc/lane/job/table.h"
#include "test/unit/lane/lane_rig.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define RANKS 4
#define SLOW 3
#define HIDDEN 1
#define BEGIN_NS (100 * NS_PER_S)
#define USUAL_NS (9 * NS_PER_MS) /* time of a gradient of ranks 0 to 2 */
#define SLOW_NS (10 * NS_PER_MS) /* time of a gradient of rank SLOW */
#define CALM 3                   /* number of first rounds that wait for all ranks */

static const char *kind;
static struct rig rig;
static uint64_t opened_ns; /* time of the last close */
static double noise;       /* ratio of noise to signal (V/N) in the sums that rank 0 sends */
/* number of gradients in the sums that rank 0 sends; 0: rank 0 sends no sums */
static uint32_t measured;

static int stop(void **state)
{
    rig_stop(&rig);
    return 0;
}

static void place(struct backup_terms terms)
{
    struct lane_piece hidden = {.id = HIDDEN,
                                .terms = {.quorum = QUORUM_FIRST, .bound = 2, .role = LEADS_ROUNDS},
                                .backup = &terms};
    rig_place_piece(&rig, RANKS, hidden, false);
}

static void start(struct backup_terms terms)
{
    rig_start(&rig, kind);
    rig.clock_ns = opened_ns = BEGIN_NS;
    noise = 2;
    measured = RANKS;
    place(terms);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        rig_connect(&rig, rank, RIG_JOB, rank);
    rig.count = RANKS;
}

/* Announces the round for the rank, and returns when the lane has read the announcement. */
static void end(uint32_t rank, uint64_t round)
{
    struct piece *hidden = piece_find(job_find(rig.lane, RIG_JOB), HIDDEN);
    rig_say(&rig, rank,
            (struct say){.piece = HIDDEN,
                         .word = (uint32_t)round,
                         .round = round,
                         .operation = RECORD_BARRIER,
                         .has_no_input = true,
                         .has_no_output = true});
    rig_until(&rig, rank_said(&hidden->ranks[rank], round)->round == round);
}

/* Sends sums of rank 0. The lane reads these sums before the next announcement of rank 0. */
static void send_sums(uint64_t round, uint32_t inputs, double variance, double signal)
{
    double mean = signal + variance / RANKS;
    const struct record_measure sums = {.kind = RECORD_MEASURE,
                                        .lane = RIG_LANE,
                                        .lanes = 1,
                                        .round = round,
                                        .inputs = inputs,
                                        .blocks = 1,
                                        .squares = RANKS * (signal + variance),
                                        .mean = mean,
                                        .product = signal - mean}; /* the curvature c is 1 */
    assert_int_equal(fabric_send(rig.workers[0].conn, &sums, sizeof sums, NULL, 0), 0);
}

static bool is_closed(uint64_t round)
{
    const struct rig_worker *w = &rig.workers[0];
    return w->commits_count > 0 && w->commits[w->commits_count - 1] == round;
}

static void expect_set(uint64_t round, uint64_t ranks, uint8_t reason)
{
    const struct record_chosen *chosen = &rig.workers[0].chosen;
    rig_until(&rig, is_closed(round));
    assert_int_equal(chosen->round, round);
    assert_int_equal(chosen->ranks[0], ranks);
    assert_int_equal(chosen->reason, reason);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        assert_int_equal(rig.workers[rank].errors_count, 0);
    opened_ns = rig.clock_ns;
}

/* Ranks 0 to `ranks` - 1 announce the round after the usual time. */
static void arrive(uint64_t round, uint32_t ranks)
{
    rig.clock_ns = opened_ns + USUAL_NS;
    for (uint32_t rank = 0; rank < ranks && rank < SLOW; rank++)
        end(rank, round);
}

/* Runs a round of all ranks, in which no gradient is dropped. */
static void round_of_all(uint64_t round)
{
    arrive(round, SLOW);
    assert_false(is_closed(round));
    rig.clock_ns = opened_ns + SLOW_NS;
    end(SLOW, round);
    expect_set(round, 15, RECORD_REASON_ALL);
    if (measured > 0)
        send_sums(round, measured, noise, 1);
}

static void calm_rounds(uint64_t last)
{
    for (uint64_t round = 1; round <= last; round++)
        round_of_all(round);
}

/* --- the rule decides --- */

static void a_round_closes_when_no_further_gradient_is_worth_its_time(void **state)
{
    start((struct backup_terms){.rule = BACKUP_TERMS_AUTO});
    noise = 0; /* without noise, one gradient is as good as all gradients */
    rig.clock_ns += NS_PER_S;
    for (uint64_t round = 1; round <= 3; round++)
        round_of_all(round);
    arrive(4, 2);
    expect_set(4, 3, RECORD_REASON_GAIN);
}

static void a_round_of_noisy_gradients_waits_for_all(void **state)
{
    start((struct backup_terms){.rule = BACKUP_TERMS_AUTO});
    noise = 500;
    calm_rounds(8);
}

static void the_first_rounds_wait_for_all(void **state)
{
    start((struct backup_terms){.rule = BACKUP_TERMS_AUTO});
    noise = 0;
    calm_rounds(3);
}

/* The lane sleeps exactly until the time at which the rule wants to decide again. */
static void an_absent_rank_is_awaited_until_the_time_of_the_next_decision(void **state)
{
    int moments = 0;
    start((struct backup_terms){.rule = BACKUP_TERMS_AUTO});
    calm_rounds(CALM);
    arrive(CALM + 1, SLOW);
    while (!is_closed(CALM + 1)) {
        uint64_t next_ns = lane_next_ns(rig.lane);
        assert_true(next_ns > rig.clock_ns);
        rig.clock_ns = next_ns - 1;
        rig_settle(&rig);
        assert_false(is_closed(CALM + 1));
        rig.clock_ns = next_ns;
        rig_until(&rig, is_closed(CALM + 1) || lane_next_ns(rig.lane) > next_ns);
        assert_true(++moments < 20);
    }
    assert_true(moments > 0 && rig.clock_ns < opened_ns + 2 * SLOW_NS);
    assert_int_equal(lane_next_ns(rig.lane), 0);
    expect_set(CALM + 1, 7, RECORD_REASON_MOMENT);
}

static void a_rank_that_comes_in_time_is_counted(void **state)
{
    start((struct backup_terms){.rule = BACKUP_TERMS_AUTO});
    calm_rounds(CALM);
    arrive(CALM + 1, SLOW);
    assert_true(lane_next_ns(rig.lane) > rig.clock_ns);
    end(SLOW, CALM + 1);
    expect_set(CALM + 1, 15, RECORD_REASON_ALL);
    assert_int_equal(lane_next_ns(rig.lane), 0);
}

/* If no rank sends a loss, the rule AdaSync keeps its first number of gradients. */
static void a_rule_without_sums_needs_none(void **state)
{
    start((struct backup_terms){.rule = BACKUP_TERMS_ADASYNC, .k = 3});
    arrive(1, 2);
    assert_false(is_closed(1));
    end(2, 1);
    expect_set(1, 7, RECORD_REASON_GAIN);
}

static void a_rank_with_a_long_absence_is_waited_for(void **state)
{
    start((struct backup_terms){.rule = BACKUP_TERMS_STATIC, .k = 3, .absence = 2});
    for (uint64_t round = 1; round <= 2; round++) {
        arrive(round, 3);
        expect_set(round, 7, RECORD_REASON_GAIN);
    }
    arrive(3, 3);
    assert_false(is_closed(3));
    rig.clock_ns += 3600 * NS_PER_S;
    end(SLOW, 3);
    expect_set(3, 15, RECORD_REASON_ALL);
}

static void a_rank_that_has_left_is_not_waited_for(void **state)
{
    const struct record_leave leave = {.kind = RECORD_LEAVE};
    start((struct backup_terms){.rule = BACKUP_TERMS_AUTO});
    noise = 500;
    calm_rounds(CALM);
    assert_int_equal(fabric_send(rig.workers[SLOW].conn, &leave, sizeof leave, NULL, 0), 0);
    rig_until(&rig, job_find(rig.lane, RIG_JOB)->workers[SLOW].state == WORKER_LEFT);
    arrive(CALM + 1, SLOW);
    rig_until(&rig, is_closed(CALM + 1));
}

/* --- sums --- */

static void a_job_without_sums_waits_for_all(void **state)
{
    start((struct backup_terms){.rule = BACKUP_TERMS_AUTO});
    measured = 0;
    calm_rounds(6);
}

static void sums_that_are_not_finite_are_no_sample(void **state)
{
    start((struct backup_terms){.rule = BACKUP_TERMS_AUTO});
    noise = (double)NAN;
    calm_rounds(6);
    noise = (double)INFINITY;
    for (uint64_t round = 7; round <= 9; round++)
        round_of_all(round);
}

static void sums_of_another_round_or_number_are_dropped(void **state)
{
    start((struct backup_terms){.rule = BACKUP_TERMS_AUTO});
    measured = RANKS - 1;
    noise = 0;
    for (uint64_t round = 1; round <= 5; round++) {
        round_of_all(round);
        send_sums(round + 1, RANKS, 0, 1);
        if (round > 1)
            send_sums(round - 1, RANKS, 0, 1);
    }
}

static void the_sums_of_a_round_count_once(void **state)
{
    start((struct backup_terms){.rule = BACKUP_TERMS_AUTO});
    noise = 500;
    for (uint64_t round = 1; round <= 6; round++) {
        round_of_all(round);
        /* these sums would make the rule close the next round early */
        send_sums(round, RANKS, 0, 1e6);
    }
}

/* --- dropped pieces and failed allocations --- */

static void a_dropped_piece_never_wakes_its_lane(void **state)
{
    const uint32_t piece = HIDDEN;
    start((struct backup_terms){.rule = BACKUP_TERMS_AUTO});
    calm_rounds(CALM);
    arrive(CALM + 1, SLOW);
    assert_true(lane_next_ns(rig.lane) > 0);
    lane_drop(rig.lane, RIG_JOB, &piece, 1);
    assert_int_equal(lane_next_ns(rig.lane), 0);
    send_sums(CALM, RANKS, 0, 1); /* the piece was dropped, so no rule receives these sums */
    rig_settle(&rig);
    assert_false(rig.workers[0].is_closed);
}

static void terms_of_another_number_of_ranks_are_refused(void **state)
{
    const struct backup_terms wrong[] = {
        {.rule = BACKUP_TERMS_STATIC, .k = RANKS + 1, .absence = 1},
        {.rule = BACKUP_TERMS_AUTO, .least = RANKS + 1},
        {.rule = BACKUP_TERMS_RULES},
        {.rule = BACKUP_TERMS_AUTO, .rate = BACKUP_TERMS_RATES}};
    rig_start(&rig, kind);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const struct lane_piece hidden = {
            .id = HIDDEN,
            .dtype = REDUCE_F32,
            .tensor = "hidden",
            .terms = {.quorum = QUORUM_FIRST, .bound = 2, .role = LEADS_ROUNDS},
            .backup = &wrong[i]};
        assert_int_equal(lane_place(rig.lane, RIG_JOB, "job", RANKS, 1, false, &hidden, 1),
                         -EINVAL);
    }
}

static void the_nth_allocation_fails_and_leaves_none_behind(void **state)
{
    const struct backup_terms terms = {.rule = BACKUP_TERMS_DBW};
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
         .terms = {.quorum = QUORUM_CHOSEN, .rule = UPDATE_SGD, .role = FOLLOWS_ROUNDS},
         .backup = &terms}};
    uint64_t bytes = 0, limit, failures = 0;
    rig_start(&rig, kind);
    for (uint64_t most = 64;; most += 256) {
        lane_set_memory_limit(rig.lane, most);
        int error = lane_place(rig.lane, RIG_JOB, "job", RANKS, 1, false, pieces, 2);
        if (error == 0)
            break;
        assert_int_equal(error, -ENOSPC);
        lane_memory(rig.lane, &bytes, &limit);
        assert_int_equal(bytes, 0);
        failures++;
    }
    assert_true(failures > 30);
    lane_drop(rig.lane, RIG_JOB, NULL, 0);
    rig_settle(&rig);
    lane_memory(rig.lane, &bytes, &limit);
    assert_int_equal(bytes, 0);
}

#define test(name) cmocka_unit_test_teardown(name, stop)

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "shm";
    const struct CMUnitTest tests[] = {
        test(a_round_closes_when_no_further_gradient_is_worth_its_time),
        test(a_round_of_noisy_gradients_waits_for_all),
        test(the_first_rounds_wait_for_all),
        test(an_absent_rank_is_awaited_until_the_time_of_the_next_decision),
        test(a_rank_that_comes_in_time_is_counted),
        test(a_rule_without_sums_needs_none),
        test(a_rank_with_a_long_absence_is_waited_for),
        test(a_rank_that_has_left_is_not_waited_for),
        test(a_job_without_sums_waits_for_all),
        test(sums_that_are_not_finite_are_no_sample),
        test(sums_of_another_round_or_number_are_dropped),
        test(the_sums_of_a_round_count_once),
        test(a_dropped_piece_never_wakes_its_lane),
        test(terms_of_another_number_of_ranks_are_refused),
        test(the_nth_allocation_fails_and_leaves_none_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
