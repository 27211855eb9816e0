/* Tests the computations of `gradpool-bench simulate --live`, without a service. The bench replays
 * a trace on this machine, and simulates the same jobs. */
#include "bench/live/live.h"
#include "bench/sim/input/csv.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define HEAD "job_id,submit_s,duration_s,workers,model\n"

struct fixture {
    struct live live;
    char path[64], error[TABLE_ERROR_BYTES];
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    if (!f)
        return -1;
    snprintf(f->path, sizeof f->path, "/tmp/gradpool-test-live-XXXXXX");
    close(mkstemp(f->path));
    f->live = (struct live){.trace = f->path,
                            .models_folder = MODELS_DIR,
                            .replay_s = 10,
                            .time_scale = 0.5,
                            .load = 0.2,
                            .setting = {.policy = "shared",
                                        .x_gib_per_s = 2,
                                        .jitter = 0.05,
                                        .element_bytes = 4,
                                        .loss_limit_ppm = 50000,
                                        .windows = 20,
                                        .window_s = 3,
                                        .is_known = true,
                                        .overlaps = true,
                                        .seed = 1}};
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    unlink(f->path);
    live_fini(&f->live);
    free(f);
    return 0;
}

static int plan(struct fixture *f, const char *rows)
{
    FILE *file = fopen(f->path, "w");
    assert_non_null(file);
    fputs(rows, file);
    fclose(file);
    return live_plan(&f->live, f->error);
}

/* 100 s of a trace, replayed in 10 s. The second and the third of three jobs run at the same
 * time. */
static void plan_three(struct fixture *f)
{
    assert_int_equal(
        plan(f, HEAD "a,0,40,2,resnet50\nb,50,40,4,vgg16\ns,55,9,1,vgg16\nc,60,40,8,resnet50\n"),
        0);
}

static void a_trace_is_compressed_into_the_given_time(void **state)
{
    struct fixture *f = *state;
    plan_three(f);
    /* a job of one worker needs no sum and is left out */
    assert_int_equal(f->live.plan.jobs_count, 3);
    assert_float_equal(f->live.compression, 10, 1e-9);
    assert_float_equal(f->live.plan.jobs[2].arrive_ns, 6e9, 1);
    assert_float_equal(f->live.plan.jobs[2].stay_ns, 4e9, 1);
    assert_int_equal(f->live.plan.jobs[1].workers, 4);
    assert_float_equal(f->live.plan.jobs[0].step_ns, 166.667e6 / 2, 1);
    assert_int_equal(f->live.lanes, 18); /* one and a half times the peak of 12 workers */
}

static void tensors_are_scaled_until_the_load_is_offered_in_the_mean(void **state)
{
    struct fixture *f = *state;
    double lane_s = 0;
    plan_three(f);
    live_scale(&f->live, 0.5);
    for (size_t i = 0; i < 3; i++) {
        const struct plan_job *job = &f->live.plan.jobs[i];
        lane_s += (double)plan_bytes(&f->live.plan, job) * job->workers * 0.5 / job->step_ns *
                  job->stay_ns / 1e9;
    }
    assert_float_equal(lane_s / 10, 0.2, 1e-3);
}

static void jobs_are_measured_side_by_side_as_far_as_lanes_go(void **state)
{
    struct fixture *f = *state;
    plan_three(f);
    assert_int_equal(live_group(&f->live, 0), 3);
    f->live.lanes = 7;
    assert_int_equal(live_group(&f->live, 0), 2);
    /* a group has at least one job, even if this job needs more lanes than the service has */
    assert_int_equal(live_group(&f->live, 2), 3);
}

static void the_simulation_plays_the_lane_time_that_was_measured(void **state)
{
    struct fixture *f = *state;
    plan_three(f);
    for (size_t i = 0; i < 3; i++)
        f->live.lane_ns[i] = 10e6;
    f->live.clocks_by_reports = 1.5;
    assert_int_equal(live_simulate(&f->live, f->error), 0);
    double busy_s = 0;
    for (size_t i = 0; i < 3; i++) {
        assert_true(f->live.periods_ns[i] > f->live.plan.jobs[i].step_ns);
        assert_true(f->live.losses[i] >= -0.01 && f->live.losses[i] < 0.05);
        busy_s += 15e6 / f->live.periods_ns[i] * 4;
    }
    assert_float_equal(f->live.simulated.fluid * 3600, busy_s, 0.01 * busy_s);
    assert_float_equal(f->live.trail.parts[160].allocated, 0, 0); /* the first job has ended */
    assert_true(f->live.trail.parts[230].allocated >= 1);
    assert_true(f->live.trail.parts[230].fluid > f->live.trail.parts[100].fluid);
}

static void jobs_that_cannot_be_played_are_reported(void **state)
{
    struct fixture *f = *state;
    char rows[4096] = HEAD;
    assert_int_equal(plan(f, HEAD "a,0,40,17,resnet50\n"), -EINVAL);
    assert_non_null(strstr(f->error, "17 workers"));
    live_fini(&f->live);
    f->live.workload = (struct workload){0};
    f->live.models = (struct models){0};
    for (int i = 0; i < PLAN_JOBS_MAX + 1; i++)
        snprintf(rows + strlen(rows), sizeof rows - strlen(rows), "j%d,0,40,2,resnet50\n", i);
    assert_int_equal(plan(f, rows), -EINVAL);
    assert_non_null(strstr(f->error, "33 jobs"));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_trace_is_compressed_into_the_given_time),
        CASE(tensors_are_scaled_until_the_load_is_offered_in_the_mean),
        CASE(jobs_are_measured_side_by_side_as_far_as_lanes_go),
        CASE(the_simulation_plays_the_lane_time_that_was_measured),
        CASE(jobs_that_cannot_be_played_are_reported),
    };
    return cmocka_run_group_tests_name("live", tests, NULL, NULL);
}
