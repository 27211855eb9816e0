/* Tests whole simulations: core counts computed by hand, and a small run with known figures. */
#include "bench/sim/input/csv.h"
#include "bench/sim/simulate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* A tensor of 16 MiB, and a step of 300 ms. With two workers and 1 GiB/s, a round of the tensor
 * needs 31.25 ms of lane time. */
static struct model_tensor tensor = {1 << 22, 1};
static const struct model one_tensor = {
    .name = "one", .step_ns = 300e6, .tensors = &tensor, .tensors_count = 1, .elements = 1 << 22};
#define LANE_MS 31.25
#define PERIOD_MS (300 + LANE_MS / 2) /* period of the job on two lanes */

static const struct setting plain = {.policy = "shared",
                                     .x_gib_per_s = 1,
                                     .line_gbit_per_s = 1e6,
                                     .element_bytes = 4,
                                     .loss_limit_ppm = 50000,
                                     .windows = 20,
                                     .window_s = 10,
                                     .moves = true,
                                     .seed = 1};

static struct workload_job job_of(double from_hours, double to_hours)
{
    return (struct workload_job){.submit_ns = (uint64_t)(from_hours * (double)NS_PER_HOUR),
                                 .end_ns = (uint64_t)(to_hours * (double)NS_PER_HOUR),
                                 .workers = 2,
                                 .model = &one_tensor};
}

static struct simulated run(struct workload_job *jobs, size_t count, double hours,
                            const struct setting *setting)
{
    struct workload workload = {
        .jobs = jobs, .count = count, .end_ns = (uint64_t)(hours * (double)NS_PER_HOUR)};
    char error[TABLE_ERROR_BYTES];
    struct simulated result;

    if (simulate(&workload, setting, NULL, &result, error) < 0)
        fail_msg("%s", error);
    return result;
}

static void assert_near(double a, double b, double tolerance)
{
    if (!(fabs(a - b) <= tolerance))
        fail_msg("%.6f is not within %.6f of %.6f", a, tolerance, b);
}

static void fluid_and_dedicated_are_as_worked_out_by_hand(void **state)
{
    struct workload_job jobs[] = {job_of(0, 3), job_of(1, 2)};
    struct simulated r = run(jobs, 2, 4, &plain);

    assert_near(r.hours, 4, 1e-9);
    assert_near(r.dedicated, 2 * 3 + 2 * 1, 1e-9);
    assert_near(r.fluid, (3 + 1) * LANE_MS / PERIOD_MS, 1e-3);
    assert_int_equal(r.placed, 2);
    assert_int_equal(r.refused, 0);
}

/* One lane is enough for the job. A round on one lane is 4.7 % longer than on two lanes, because
 * one lane does the work of both. */
static void a_job_alone_on_one_lane_loses_the_work_of_the_other_lane(void **state)
{
    struct workload_job jobs[] = {job_of(0, 1)};
    double loss = 1 - PERIOD_MS / (PERIOD_MS + LANE_MS / 2);
    struct simulated r;

    r = run(jobs, 1, 1, &plain);

    assert_near(r.loss_mean, loss, 1e-3);
    assert_near(r.loss_own, loss, 1e-3);
    assert_near(r.loss_predicted, loss, 1e-3);
    assert_near(r.within_limit, 1, 0);
    assert_int_equal(r.windows, 20);
    /* after half a minute of low load the simulation tries one lane for 50 rounds; these rounds are
     * longer */
    assert_near(r.measuring, 2 * (25 * PERIOD_MS + 30e3 + 50 * (PERIOD_MS + LANE_MS / 2)) / 3.6e6,
                1e-4);
    assert_near(r.allocated, 1 + r.measuring / 2, 1e-4);
}

/* Of sixteen pieces one lane gets ten, the other lane six. The loss limit would also allow twelve
 * and four (P15). */
static void a_job_without_room_on_one_lane_gets_two(void **state)
{
    struct workload_job jobs[] = {job_of(0, 1)};
    struct setting strict = plain;
    struct simulated r;

    strict.loss_limit_ppm = 30000;
    strict.piece_bytes_max = 1 << 20;
    r = run(jobs, 1, 1, &strict);
    assert_near(r.allocated, 2, 0.01);
    assert_near(r.loss_mean, 1 - PERIOD_MS / (PERIOD_MS + LANE_MS / 8), 1e-3);
    assert_near(r.within_limit, 1, 0);
}

/* Twelve jobs share lanes. After eight have left, the other four need fewer lanes. */
static void lanes_close_when_jobs_leave_because_tasks_move(void **state)
{
    struct workload_job jobs[12];
    struct setting moves = plain, stays;
    struct simulated moved, stayed;

    moves.x_gib_per_s = 2;
    stays = moves;
    stays.moves = false;
    for (size_t i = 0; i < 12; i++)
        jobs[i] = job_of(0.001 * (double)i, i % 3 ? 1 : 20);
    moved = run(jobs, 12, 20, &moves);
    stayed = run(jobs, 12, 20, &stays);
    assert_int_equal(stayed.moves, 0);
    assert_true(moved.moves > 0);
    assert_true(moved.allocated < stayed.allocated);
    assert_near(moved.within_limit, 1, 0);
}

/* A job of eight workers does not fit on a shared lane, which has room for a sixth of its work. */
static void a_refused_job_costs_as_many_lanes_as_workers(void **state)
{
    struct workload_job job = job_of(0, 5);
    struct setting full = plain;
    struct simulated r;

    job.workers = 8;
    full.lanes = 1;
    r = run(&job, 1, 5, &full);
    assert_int_equal(r.refused, 1);
    assert_int_equal(r.placed, 0);
    assert_near(r.allocated, 8 * 5, 1e-6);
    assert_int_equal(r.sampled, 0);
}

static void a_job_that_is_over_before_it_was_measured_was_never_placed(void **state)
{
    struct workload_job jobs[] = {job_of(0, 0.001)}; /* the job runs 3.6 s, less than 25 rounds */
    struct simulated r = run(jobs, 1, 1, &plain);

    assert_int_equal(r.brief, 1);
    assert_int_equal(r.placed, 0);
    assert_near(r.allocated, 2 * 0.001, 1e-9);
}

/* Six hours of drawn jobs with real tables. The expected figures were printed by this program. If
 * they change, placement or simulation has changed, and needs a review. */
static void six_drawn_hours_have_their_golden_results(void **state)
{
    struct setting setting = {.policy = "shared",
                              .x_gib_per_s = 3,
                              .line_gbit_per_s = 25,
                              .jitter = 0.087,
                              .element_bytes = 4,
                              .loss_limit_ppm = 50000,
                              .windows = 30,
                              .window_s = 5,
                              .moves = true,
                              .overlaps = true,
                              .seed = 1};
    char error[TABLE_ERROR_BYTES];
    struct workload workload;
    struct models models;
    struct simulated a, b;

    assert_int_equal(models_load(&models, MODELS_DIR, error), 0);
    assert_int_equal(models.count, 15);
    assert_int_equal(workload_generate(&workload, 1, 6, &models, error), 0);
    assert_int_equal(simulate(&workload, &setting, NULL, &a, error), 0);
    assert_int_equal(simulate(&workload, &setting, NULL, &b, error), 0);
    assert_memory_equal(&a, &b, sizeof(a));
    print_message("# placed %llu, allocated %.2f, fluid %.2f, loss %.4f, predicted %.4f, near "
                  "%.3f, moves %llu\n",
                  (unsigned long long)a.placed, a.allocated, a.fluid, a.loss_mean, a.loss_predicted,
                  a.predicted_near, (unsigned long long)a.moves);
    assert_int_equal(a.placed, 22);
    assert_near(a.fluid, 47.99, 0.1);
    assert_near(a.allocated, 118.32, 0.2);
    assert_near(a.loss_mean, 0.0193, 0.002);
    assert_true(a.fluid < a.allocated && a.allocated < a.dedicated);
    assert_true(a.within_limit >
                0.8); /* false for jobs of lstm_lm, whose rounds are short compared with a piece */
    assert_true(a.predicted_near > 0.65); /* lower than 1, because rounds of lstm_lm are short */
    assert_true(fabs(a.loss_predicted - a.loss_mean) < fabs(a.loss_counted - a.loss_mean));
    workload_fini(&workload);
    models_fini(&models);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fluid_and_dedicated_are_as_worked_out_by_hand),
        cmocka_unit_test(a_job_alone_on_one_lane_loses_the_work_of_the_other_lane),
        cmocka_unit_test(a_job_without_room_on_one_lane_gets_two),
        cmocka_unit_test(lanes_close_when_jobs_leave_because_tasks_move),
        cmocka_unit_test(a_refused_job_costs_as_many_lanes_as_workers),
        cmocka_unit_test(a_job_that_is_over_before_it_was_measured_was_never_placed),
        cmocka_unit_test(six_drawn_hours_have_their_golden_results),
    };

    return cmocka_run_group_tests_name("simulate", tests, NULL, NULL);
}
