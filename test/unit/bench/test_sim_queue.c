/* Tests the simulation of shared lanes. The results are compared with formulas and with values
 * computed by hand: for rounds that never overlap, and for lanes that alternate between chunks of
 * several jobs. */
#include "bench/sim/lanes/queue.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "packer/packer.h"

#define MS 1e6
#define CHUNK_NS (0.2 * MS)
#define JOBS_MAX 8

/* Returns a job that computes, and then has all its work on lane 0 at once. */
static struct queue_job burst_job(const struct queue_piece *piece, double compute_ns, double jitter,
                                  uint64_t seed)
{
    return (struct queue_job){
        .forward_ns = compute_ns / 3,
        .backward_ns = compute_ns * 2 / 3,
        .jitter = jitter,
        .workers = 1,
        .seed = seed,
        .pieces = piece,
        .pieces_count = 1,
    };
}

static double loss_of(const struct queue_job *job, const struct queue_outcome *outcome)
{
    double alone_ns;

    assert_int_equal(queue_alone(job, outcome->first, outcome->count, &alone_ns, NULL), 0);
    return 1 - alone_ns / outcome->elapsed_ns;
}

static void assert_near(double a, double b, double tolerance)
{
    if (!(fabs(a - b) <= tolerance))
        fail_msg("%.6f is not within %.6f of %.6f", a, tolerance, b);
}

static void a_job_alone_loses_nothing(void **state)
{
    const struct queue_piece pieces[] = {
        {0, 0.2, 3 * MS, 9 * MS}, {1, 0.5, 1 * MS, 30 * MS}, {0, 1, 2 * MS, 11 * MS}};
    struct queue_job job = {.forward_ns = 30 * MS,
                            .backward_ns = 60 * MS,
                            .jitter = 0.1,
                            .workers = 4,
                            .seed = 7,
                            .pieces = pieces,
                            .pieces_count = 3};
    struct queue_outcome outcome;

    assert_int_equal(queue_run(&job, 1, CHUNK_NS, 1e11, 2, &outcome), 0);
    assert_true(outcome.count > 700);
    assert_near(loss_of(&job, &outcome), 0, 1e-9);
}

static void a_round_ends_with_its_slowest_lane(void **state)
{
    const struct queue_piece pieces[] = {{0, 1, 0, 10 * MS}, {1, 1, 0, 25 * MS}, {2, 1, 0, 5 * MS}};
    struct queue_job job = burst_job(pieces, 100 * MS, 0, 1);
    double elapsed_ns, deviation_ns;

    job.pieces_count = 3;
    assert_int_equal(queue_alone(&job, 0, 10, &elapsed_ns, &deviation_ns), 0);
    assert_near(elapsed_ns, 10 * 125 * MS, 1);
    assert_near(deviation_ns, 0, 1);
}

/* Pieces are ready after 40, 70 and 100 ms. Each occupies the worker's network link for 35 ms, so
 * the second and the third piece wait for the link. */
static void pieces_leave_one_after_the_other(void **state)
{
    const struct queue_piece pieces[] = {
        {0, 0, 35 * MS, 1 * MS}, {1, 0.5, 35 * MS, 1 * MS}, {2, 1, 35 * MS, 1 * MS}};
    struct queue_job job = {.forward_ns = 40 * MS,
                            .backward_ns = 60 * MS,
                            .workers = 2,
                            .pieces = pieces,
                            .pieces_count = 3};
    double elapsed_ns;

    assert_int_equal(queue_alone(&job, 0, 1, &elapsed_ns, NULL), 0);
    assert_near(elapsed_ns, (40 + 3 * 35 + 1) * MS, 1);
}

static void a_round_takes_as_long_as_its_slowest_worker(void **state)
{
    const struct queue_piece piece = {0, 1, 0, 1 * MS};
    struct queue_job job = burst_job(&piece, 100 * MS, 0.1, 3);
    double one_ns, many_ns;

    assert_int_equal(queue_alone(&job, 0, 10000, &one_ns, NULL), 0);
    job.workers = 8;
    assert_int_equal(queue_alone(&job, 0, 10000, &many_ns, NULL), 0);
    assert_near(one_ns / 10000, 101 * MS, 0.3 * MS);
    /* expected maximum of 8 standard normal variables */
    assert_near(many_ns / 10000, (101 + 14.24) * MS, 0.3 * MS);
}

/* pieces are ready after 30, 50 and 50 ms of each round */
static void each_lane_reports_the_end_of_a_round(void **state)
{
    const struct queue_piece pieces[] = {{0, 0.5, 0, 5 * MS}, {0, 1, 0, 3 * MS}, {2, 1, 0, 4 * MS}};
    struct queue_job job = {.forward_ns = 10 * MS,
                            .backward_ns = 40 * MS,
                            .workers = 1,
                            .pieces = pieces,
                            .pieces_count = 3};
    struct queue_ending endings[3];

    assert_int_equal(queue_endings(&job, 7, endings), 0);
    assert_near(endings[0].span_ns, 23 * MS, 1);
    assert_near(endings[0].burst_ns, 3 * MS, 1);
    assert_near(endings[1].span_ns, 0, 0);
    assert_near(endings[2].span_ns, 4 * MS, 1);
    assert_near(endings[2].burst_ns, 4 * MS, 1);
}

/* Two jobs with loads u = v = 0.4: both lose uv / (1 + uv). */
static void two_equal_jobs_lose_as_the_textbook_predicts(void **state)
{
    const struct queue_piece piece = {0, 1, 0, 40 * MS};
    struct queue_job jobs[2];
    struct queue_outcome outcomes[2];

    for (uint64_t i = 0; i < 2; i++)
        jobs[i] = burst_job(&piece, 60 * MS, 0.3, 11 + i);
    assert_int_equal(queue_run(jobs, 2, CHUNK_NS, 3e12, 10, outcomes), 0);
    for (size_t i = 0; i < 2; i++)
        assert_near(loss_of(&jobs[i], &outcomes[i]), 0.16 / 1.16, 0.006);
}

static void many_jobs_lose_as_rule_shared_predicts(void **state)
{
    const double compute_ms[] = {80, 150, 210, 95, 330}, lane_ms[] = {9, 12, 40, 6, 30};
    struct queue_piece pieces[5];
    struct queue_job jobs[5];
    struct queue_outcome outcomes[5];
    struct packer_resident residents[5] = {0};
    double losses[5];

    for (uint64_t i = 0; i < 5; i++) {
        pieces[i] = (struct queue_piece){0, 1, 0, lane_ms[i] * MS};
        jobs[i] = burst_job(&pieces[i], compute_ms[i] * MS, 0.3, 100 + i);
        residents[i].job = i;
        residents[i].lane_ns = (uint64_t)(lane_ms[i] * MS);
        residents[i].timing.period_ns = (uint64_t)((compute_ms[i] + lane_ms[i]) * MS);
    }
    assert_int_equal(packer_losses("shared", residents, 5, losses), 0);
    assert_int_equal(queue_run(jobs, 5, CHUNK_NS, 3e12, 10, outcomes), 0);
    for (size_t i = 0; i < 5; i++)
        assert_near(loss_of(&jobs[i], &outcomes[i]), losses[i], 0.01);
}

static void without_jitter_rounds_that_do_not_meet_never_meet(void **state)
{
    const struct queue_piece piece = {0, 1, 0, 40 * MS};
    struct queue_job jobs[] = {burst_job(&piece, 60 * MS, 0, 1), burst_job(&piece, 60 * MS, 0, 2)};
    struct queue_outcome outcomes[2];

    jobs[1].start_ns = 50 * MS;
    assert_int_equal(queue_run(jobs, 2, CHUNK_NS, 1e11, 0, outcomes), 0);
    for (size_t i = 0; i < 2; i++) {
        assert_in_range(outcomes[i].count, 998, 1000);
        assert_near(outcomes[i].elapsed_ns / (double)outcomes[i].count, 100 * MS, 1);
    }
}

/* Both jobs compute for 60 ms. Then the lane serves both bursts in turns, for 80 ms. In each round
 * the first job becomes about one chunk earlier. The test therefore uses few rounds and small
 * chunks. */
static void without_jitter_rounds_in_step_stay_in_step(void **state)
{
    const struct queue_piece piece = {0, 1, 0, 40 * MS};
    struct queue_job jobs[] = {burst_job(&piece, 60 * MS, 0, 1), burst_job(&piece, 60 * MS, 0, 2)};
    struct queue_outcome outcomes[2];

    assert_int_equal(queue_run(jobs, 2, CHUNK_NS / 20, 2000 * MS, 2, outcomes), 0);
    for (size_t i = 0; i < 2; i++)
        assert_near(outcomes[i].elapsed_ns / (double)outcomes[i].count, 140 * MS, CHUNK_NS);
}

/* The second job's burst of 1 ms arrives while the first job has 100 ms of work left. The burst
 * waits until one chunk of the first job is summed. After that the lane alternates between chunks
 * of both jobs. */
static void a_short_burst_waits_for_chunks_not_for_tasks(void **state)
{
    const struct queue_piece task = {0, 1, 0, 100 * MS}, crumb = {0, 1, 0, 1 * MS};
    struct queue_job jobs[] = {burst_job(&task, 100 * MS, 0, 1), burst_job(&crumb, 149 * MS, 0, 2)};
    struct queue_outcome outcomes[2];

    assert_int_equal(queue_run(jobs, 2, CHUNK_NS, 200 * MS, 0, outcomes), 0);
    assert_int_equal(outcomes[1].count, 1);
    assert_true(outcomes[1].elapsed_ns > 151 * MS - CHUNK_NS);
    assert_true(outcomes[1].elapsed_ns <= 151 * MS + CHUNK_NS);
}

static void a_seed_gives_the_same_rounds_again_and_another_seed_others(void **state)
{
    const struct queue_piece pieces[] = {{0, 0.5, 1 * MS, 20 * MS}, {1, 1, 1 * MS, 20 * MS}};
    struct queue_job jobs[4];
    struct queue_outcome a[4], b[4], c[4];

    for (uint64_t i = 0; i < 4; i++) {
        jobs[i] = burst_job(pieces, (70 + 10 * (double)i) * MS, 0.1, i);
        jobs[i].pieces_count = 2;
    }
    assert_int_equal(queue_run(jobs, 4, CHUNK_NS, 1e11, 2, a), 0);
    assert_int_equal(queue_run(jobs, 4, CHUNK_NS, 1e11, 2, b), 0);
    assert_memory_equal(a, b, sizeof(a));
    jobs[0].seed = 99;
    assert_int_equal(queue_run(jobs, 4, CHUNK_NS, 1e11, 2, c), 0);
    assert_memory_not_equal(a, c, sizeof(a));
}

static void nothing_to_do_is_no_round_and_no_harm(void **state)
{
    const struct queue_piece piece = {3, 1, 0, 0};
    struct queue_job jobs[] = {burst_job(&piece, 60 * MS, 0, 1), {.forward_ns = 1, .workers = 2}};
    struct queue_outcome outcomes[2];

    assert_int_equal(queue_run(NULL, 0, CHUNK_NS, 1e9, 0, NULL), 0);
    assert_int_equal(queue_run(jobs, 2, CHUNK_NS, 1e9, 0, outcomes), 0);
    assert_int_equal(outcomes[0].count, 16);
    assert_int_equal(outcomes[1].count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_alone_loses_nothing),
        cmocka_unit_test(a_round_ends_with_its_slowest_lane),
        cmocka_unit_test(pieces_leave_one_after_the_other),
        cmocka_unit_test(a_round_takes_as_long_as_its_slowest_worker),
        cmocka_unit_test(each_lane_reports_the_end_of_a_round),
        cmocka_unit_test(two_equal_jobs_lose_as_the_textbook_predicts),
        cmocka_unit_test(many_jobs_lose_as_rule_shared_predicts),
        cmocka_unit_test(without_jitter_rounds_that_do_not_meet_never_meet),
        cmocka_unit_test(without_jitter_rounds_in_step_stay_in_step),
        cmocka_unit_test(a_short_burst_waits_for_chunks_not_for_tasks),
        cmocka_unit_test(a_seed_gives_the_same_rounds_again_and_another_seed_others),
        cmocka_unit_test(nothing_to_do_is_no_round_and_no_harm),
    };

    return cmocka_run_group_tests_name("sim_queue", tests, NULL, NULL);
}
