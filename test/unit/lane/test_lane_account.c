/* Tests the lane's accounts: lane time of each job, and starts of rounds (RULES.md of svc/lane,
 * A22). */
#include "svc/base/clock.h"
#include "svc/fabric/ofi/conn.h"
#include "test/unit/lane/lane_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const char *kind;
static struct rig rig;

static int stop(void **state)
{
    rig_stop(&rig);
    return 0;
}

static void say(uint32_t rank, uint32_t piece, uint64_t round, uint64_t elements)
{
    rig_say(&rig, rank,
            (struct say){.piece = piece, .word = piece, .round = round, .elements = elements});
}

static void push(uint32_t piece, uint64_t round, uint64_t elements)
{
    int before = rig.workers[0].commits_count;
    say(0, piece, round, elements);
    say(1, piece, round, elements);
    rig_until(&rig, rig.workers[0].commits_count == before + 1);
}

static void the_begin_of_each_round_is_counted_and_stamped(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 1000);
    push(1, 1, 1000);
    struct lane_job_use first = rig_use(&rig);
    assert_int_equal(first.reference, 1);
    assert_int_equal(first.begun_rounds, 1);
    uint64_t before_ns = rig_now();
    assert_true(first.begun_ns > 0 && first.begun_ns <= before_ns);
    for (uint64_t round = 2; round <= 10; round++)
        push(1, round, 1000);
    struct lane_job_use last = rig_use(&rig);
    assert_int_equal(last.begun_rounds, 10);
    assert_in_range(last.begun_ns, before_ns, rig_now());
}

static void a_round_that_waits_for_a_rank_has_not_begun(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 1000);
    push(1, 1, 1000);
    say(0, 1, 2, 1000);
    rig_settle(&rig);
    assert_int_equal(rig_use(&rig).begun_rounds, 1);
}

static void the_piece_that_takes_the_most_time_is_the_reference(void **state)
{
    rig_start(&rig, kind);
    rig_place(&rig, RIG_JOB, 2, 1, 1, 64, false);
    rig_place(&rig, RIG_JOB, 2, 2, 1, 60000, false);
    rig_connect(&rig, 0, RIG_JOB, 0);
    rig_connect(&rig, 1, RIG_JOB, 1);
    for (uint64_t round = 1; round <= 3; round++)
        push(1, round, 64);
    /* lane time includes the time in which the lane waits for its core during a round, so the
     * change may need many rounds */
    for (uint64_t round = 1; round <= 2000 && rig_use(&rig).reference != 2; round++)
        push(2, round, 60000);
    assert_int_equal(rig_use(&rig).reference, 2);
    lane_drop(rig.lane, RIG_JOB, (uint32_t[]){2}, 1);
    assert_int_equal(rig_use(&rig).reference, 0);
    push(1, 4, 64);
    assert_int_equal(rig_use(&rig).reference, 1);
    assert_int_equal(rig_use(&rig).begun_rounds, 4);
}

static void the_time_of_pieces_is_time_of_their_job(void **state)
{
    struct lane_piece_use pieces[8];
    rig_start_job(&rig, kind, 2, 3, 30000);
    for (uint64_t round = 1; round <= 10; round++)
        for (uint32_t piece = 1; piece <= 2; piece++)
            push(piece, round, 30000);
    assert_int_equal(lane_measure_pieces(rig.lane, RIG_JOB, pieces, 8), 3);
    assert_int_equal(lane_measure_pieces(rig.lane, RIG_JOB, pieces, 2), 2);
    assert_int_equal(lane_measure_pieces(rig.lane, RIG_JOB + 1, pieces, 8), 0);
    assert_true(pieces[0].busy_ns > 0 && pieces[1].busy_ns > 0);
    assert_int_equal(pieces[2].piece, 3);
    assert_int_equal(pieces[2].busy_ns, 0);
    assert_true(pieces[0].busy_ns + pieces[1].busy_ns <= rig_use(&rig).busy_ns);
}

static void the_time_of_jobs_is_the_time_of_the_lane(void **state)
{
    struct lane_use use;
    struct lane_job_use jobs[2];
    rig_start_job(&rig, kind, 2, 1, 1000);
    rig_place(&rig, 9, 1, 1, 1, 1000, false);
    rig_connect(&rig, 2, 9, 0);
    for (uint64_t round = 1; round <= 5; round++) {
        push(1, round, 1000);
        say(2, 1, round, 1000);
        rig_until(&rig, rig.workers[2].commits_count == (int)round);
    }
    lane_measure(rig.lane, &use, jobs, 2);
    assert_int_equal(use.jobs_count, 2);
    assert_true(jobs[0].busy_ns > 0 && jobs[1].busy_ns > 0);
    assert_int_equal(use.busy_ns, jobs[0].busy_ns + jobs[1].busy_ns);
}

static uint64_t busy_ns_of(uint32_t id)
{
    struct lane_use use;
    struct lane_job_use jobs[2] = {{0}};
    lane_measure(rig.lane, &use, jobs, 2);
    return jobs[jobs[0].job != id].busy_ns;
}

/* Over TCP, polls also read the queues of silent connections, until the thread sleeps. With
 * libfabric 2 one read moves the bytes of all connections, so no job is charged. */
static void a_job_is_charged_for_polls_of_its_silent_connections(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 1000);
    rig_place(&rig, 9, 1, 1, 1, 1000, false);
    rig_connect(&rig, 2, 9, 0);
    uint64_t before_ns = busy_ns_of(RIG_JOB);
    for (uint64_t round = 1; round <= 50; round++) {
        say(2, 1, round, 1000);
        rig_until(&rig, rig.workers[2].commits_count == (int)round);
    }
    bool is_charged = fabric_maps(rig.fabric) || FI_MAJOR(fi_version()) < 2;
    assert_int_equal(busy_ns_of(RIG_JOB) > before_ns, is_charged);
}

static void a_job_is_charged_for_placement_and_admission(void **state)
{
    rig_start(&rig, kind);
    rig_place(&rig, RIG_JOB, 1, 1, 1, 1000, false);
    uint64_t placed_ns = rig_use(&rig).busy_ns;
    assert_true(placed_ns > 0);
    rig_connect(&rig, 0, RIG_JOB, 0);
    assert_true(rig_use(&rig).busy_ns > placed_ns);
}

/* The test compares the charged time with the elapsed time, so it does not depend on the speed of
 * the host. */
static void no_job_is_charged_more_than_the_used_time(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 60000);
    uint64_t began_ns = clock_now_ns();
    for (uint64_t round = 1; round <= 50; round++)
        push(1, round, 60000);
    assert_true(rig_use(&rig).busy_ns <= clock_now_ns() - began_ns + NS_PER_S / 10);
}

static void a_round_waits_while_another_has_the_core(void **state)
{
    rig_start_job(&rig, kind, 2, 4, 60000);
    for (uint32_t piece = 1; piece <= 4; piece++)
        for (uint32_t rank = 0; rank < 2; rank++)
            say(rank, piece, 1, 60000);
    rig_until(&rig, rig.workers[0].commits_count == 4);
    assert_true(rig_use(&rig).queue_ns > 0);
}

/* A round may start in the turn in which the previous round ends. The second round of the small
 * piece then waits for the chunk of the large piece. */
static void a_round_that_starts_within_a_turn_waits_from_its_start(void **state)
{
    struct lane_piece_use pieces[2];
    rig_start(&rig, kind);
    rig_place(&rig, RIG_JOB, 2, 1, 1, 64, false);
    rig_place(&rig, RIG_JOB, 2, 2, 1, 60000, false);
    rig_connect(&rig, 0, RIG_JOB, 0);
    rig_connect(&rig, 1, RIG_JOB, 1);
    for (uint32_t rank = 0; rank < 2; rank++) {
        say(rank, 1, 1, 64);
        say(rank, 2, 1, 60000);
        say(rank, 1, 2, 64);
    }
    rig_until(&rig, rig.workers[0].words_count == 3);
    assert_int_equal(lane_measure_pieces(rig.lane, RIG_JOB, pieces, 2), 2);
    if (kind[0] == 's') /* over a network, rounds end between turns */
        assert_true(rig_use(&rig).queue_ns >= pieces[1].busy_ns / 2);
}

/* The round of the large piece ends before the round of the small piece starts. */
static void the_end_of_a_round_is_its_last_event(void **state)
{
    rig_start(&rig, kind);
    rig_place(&rig, RIG_JOB, 2, 1, 1, 60000, false);
    rig_place(&rig, RIG_JOB, 2, 2, 1, 64, false);
    rig_connect(&rig, 0, RIG_JOB, 0);
    rig_connect(&rig, 1, RIG_JOB, 1);
    uint64_t began_ns = rig_now(), after_large_ns = 0;
    for (uint64_t round = 1; round <= 50; round++) {
        push(1, round, 60000);
        uint64_t large_is_done_ns = rig_use(&rig).busy_ns;
        push(2, round, 64);
        after_large_ns += rig_use(&rig).busy_ns - large_is_done_ns;
    }
    uint64_t elapsed_ns = rig_now() - began_ns;
    struct lane_job_use use = rig_use(&rig);
    /* the last round ends only when the next one starts */
    assert_int_equal(use.endings.rounds, 49);
    assert_true(use.endings.span_ns > 0 && use.endings.span_ns <= elapsed_ns);
    assert_true(use.endings.burst_ns > 0);
    /* the burst does not include the time of the large piece */
    assert_true(use.endings.burst_ns <= after_large_ns);
    assert_in_range(use.round_begun_ns, began_ns, use.begun_ns);
}

static void a_round_that_runs_into_the_next_has_no_end(void **state)
{
    rig_start_job(&rig, kind, 2, 2, 60000);
    for (uint32_t piece = 1; piece <= 2; piece++)
        push(piece, 1, 60000);
    say(0, 2, 2, 60000);
    push(1, 2, 60000);
    assert_int_equal(rig_use(&rig).endings.rounds, 1);
    assert_true(rig_use(&rig).round_begun_ns > 0);
    /* two announcements at once: the missing announcement of round 2, and an announcement that
     * starts round 3 */
    say(0, 1, 3, 60000);
    say(1, 2, 2, 60000);
    say(1, 1, 3, 60000);
    rig_until(&rig, rig.workers[0].commits_count == 5);
    uint64_t rounds = rig_use(&rig).endings.rounds;
    assert_in_range(rounds, 1, 2);
    lane_drop(rig.lane, RIG_JOB, (uint32_t[]){2}, 1);
    push(1, 4, 60000);
    push(1, 5, 60000);
    assert_in_range(rig_use(&rig).endings.rounds, rounds + 1, rounds + 2);
}

/* A round ends, and the next round, which was announced earlier, starts in the same turn (A36). */
static void handled_rounds_do_not_overlap(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 60000);
    uint64_t began_ns = rig_now();
    for (uint64_t round = 1; round <= 40; round += 2) {
        for (uint32_t ahead = 0; ahead < 2; ahead++)
            for (uint32_t rank = 0; rank < 2; rank++)
                say(rank, 1, round + ahead, 60000);
        rig_until(&rig, rig.workers[0].words_count == (int)round + 1);
    }
    uint64_t elapsed_ns = clock_now_ns() - began_ns;
    assert_true(rig_use(&rig).handled_ns <= elapsed_ns);
    assert_true(rig_use(&rig).endings.span_ns <= elapsed_ns);
}

/* If several pieces of a round overlap, their time counts once (A36). */
static void handled_time_is_the_time_with_at_least_one_open_piece(void **state)
{
    rig_start_job(&rig, kind, 2, 4, 60000);
    uint64_t began_ns = rig_now();
    for (uint64_t round = 1; round <= 20; round++) {
        for (uint32_t piece = 1; piece <= 4; piece++)
            for (uint32_t rank = 0; rank < 2; rank++)
                say(rank, piece, round, 60000);
        rig_until(&rig, rig.workers[0].commits_count == 4 * (int)round);
    }
    uint64_t elapsed_ns = clock_now_ns() - began_ns;
    uint64_t handled_ns = rig_use(&rig).handled_ns;
    assert_true(handled_ns > 0 && handled_ns <= elapsed_ns);
    say(0, 1, 21, 60000);
    rig_settle(&rig);
    /* the round waits for a rank, not for the lane */
    assert_int_equal(rig_use(&rig).handled_ns, handled_ns);
}

static void the_waiting_time_of_workers_is_summed_once(void **state)
{
    rig_start_job(&rig, kind, 2, 1, 1000);
    struct say said = {.piece = 1, .word = 1, .round = 1, .elements = 1000, .stalled = 3};
    rig_say(&rig, 0, said);
    rig_say(&rig, 0, said); /* a repeated announcement has no effect */
    said.stalled = UINT16_MAX;
    rig_say(&rig, 1, said);
    rig_until(&rig, rig.workers[0].commits_count == 1);
    assert_int_equal(rig_use(&rig).stalled_ns, (3 + UINT64_C(65535)) * RECORD_STALL_NS);
}

#define CASE(name) cmocka_unit_test_teardown(name, stop)

int main(int argc, char **argv)
{
    static const struct CMUnitTest cases[] = {
        CASE(the_begin_of_each_round_is_counted_and_stamped),
        CASE(a_round_that_waits_for_a_rank_has_not_begun),
        CASE(the_piece_that_takes_the_most_time_is_the_reference),
        CASE(the_time_of_pieces_is_time_of_their_job),
        CASE(the_time_of_jobs_is_the_time_of_the_lane),
        CASE(a_job_is_charged_for_polls_of_its_silent_connections),
        CASE(a_job_is_charged_for_placement_and_admission),
        CASE(no_job_is_charged_more_than_the_used_time),
        CASE(a_round_waits_while_another_has_the_core),
        CASE(a_round_that_starts_within_a_turn_waits_from_its_start),
        CASE(the_end_of_a_round_is_its_last_event),
        CASE(a_round_that_runs_into_the_next_has_no_end),
        CASE(handled_rounds_do_not_overlap),
        CASE(handled_time_is_the_time_with_at_least_one_open_piece),
        CASE(the_waiting_time_of_workers_is_summed_once),
    };
    kind = argc > 1 ? argv[1] : "shm";
    return cmocka_run_group_tests_name(kind, cases, NULL, NULL);
}
