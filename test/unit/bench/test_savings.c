/* Tests computations of `gradpool-bench savings` without a service: intervals, arrivals, sizes of
 * tensors, and the parser of the output of `gradpool status`. */
#include "bench/savings/look.h"
#include "bench/savings/plan.h"
#include "bench/savings/statistics.h"
#include "bench/sim/input/csv.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define NEAR 1e-9

static struct models models;

static int load(void **state)
{
    char error[TABLE_ERROR_BYTES];
    return models_load(&models, MODELS_DIR, error);
}

static int unload(void **state)
{
    models_fini(&models);
    return 0;
}

static struct plan plan_of(const char *mix, size_t jobs)
{
    struct plan plan = {.mix = mix,
                        .workers = 2,
                        .seed = 7,
                        .turn_ns = 12e9,
                        .time_scale = 0.5,
                        .bytes_scale = 0.1,
                        .jitter = 0.1,
                        .jobs_count = jobs};
    char error[TABLE_ERROR_BYTES];
    assert_int_equal(plan_make(&plan, &models, error), 0);
    return plan;
}

static void the_interval_of_five_figures_has_all_five_at_93_75_percent(void **state)
{
    double values[] = {5, 1, 4, 2, 3};
    struct interval i = statistics_interval(values, 5);
    assert_true(i.median == 3 && i.low == 1 && i.high == 5);
    assert_float_equal(i.confidence, 0.9375, NEAR);
}

static void more_figures_narrow_the_interval_at_90_percent_or_more(void **state)
{
    double values[20];
    for (int i = 0; i < 20; i++)
        values[i] = 20 - i;
    struct interval i = statistics_interval(values, 20);
    assert_true(i.median == 10.5 && i.low == 6 && i.high == 15);
    assert_float_equal(i.confidence, 0.95861, 1e-5);
    for (size_t n = 5; n <= 20; n++)
        assert_true(statistics_interval(values, n).confidence >= 0.9);
}

static void too_few_figures_give_an_interval_with_its_confidence(void **state)
{
    double values[] = {2, 1};
    struct interval i = statistics_interval(values, 2);
    assert_true(i.median == 1.5 && i.low == 1 && i.high == 2);
    assert_float_equal(i.confidence, 0.5, NEAR);
    assert_true(statistics_interval(values, 1).confidence == 0);
    assert_true(statistics_interval(values, 0).median == 0);
}

static void a_quantile_is_a_figure_that_was_measured(void **state)
{
    double values[] = {4, 1, 3, 2};
    assert_true(statistics_quantile(values, 4, 0.5) == 2);
    assert_true(statistics_quantile(values, 4, 0.95) == 4);
    assert_true(statistics_quantile(values, 4, 1) == 4);
    assert_true(statistics_mean(values, 4) == 2.5);
}

static void a_mix_starts_over_and_each_job_has_a_name_of_its_own(void **state)
{
    struct plan plan = plan_of("resnet50,vgg16", 3);
    assert_string_equal(plan.jobs[0].name, "resnet50-1");
    assert_string_equal(plan.jobs[1].name, "vgg16-2");
    assert_string_equal(plan.jobs[2].name, "resnet50-3");
    assert_ptr_equal(plan.jobs[0].model, plan.jobs[2].model);
    assert_float_equal(plan.jobs[0].step_ns, 166.667e6 / 2, 1);
}

static void a_model_that_is_not_in_the_tables_is_named(void **state)
{
    struct plan plan = {.mix = "resnet50,gpt9", .turn_ns = 1, .time_scale = 1, .jobs_count = 2};
    char error[TABLE_ERROR_BYTES];
    assert_int_equal(plan_make(&plan, &models, error), -EINVAL);
    assert_non_null(strstr(error, "'gpt9'"));
}

static void jobs_come_in_the_first_quarter_leave_in_the_last_and_all_meet_between(void **state)
{
    struct plan plan = plan_of("resnet50", 8);
    double last_come = 0, first_gone = plan.turn_ns;
    for (size_t i = 0; i < 8; i++) {
        double gone = plan.jobs[i].arrive_ns + plan.jobs[i].stay_ns;
        last_come = fmax(last_come, plan.jobs[i].arrive_ns);
        first_gone = fmin(first_gone, gone);
        assert_true(gone <= plan.turn_ns + 1);
        for (size_t j = 0; j < i; j++)
            assert_true(fabs(gone - plan.jobs[j].arrive_ns - plan.jobs[j].stay_ns) > 1e6);
    }
    assert_true(last_come <= plan.turn_ns / 4 && first_gone >= plan.turn_ns * 3 / 4);
}

static void tensors_are_scaled_until_all_jobs_offer_the_load(void **state)
{
    struct plan plan = plan_of("resnet50,vgg16", 2);
    double offered = 0, ns_a_byte = 0.25;
    plan_scale(&plan, ns_a_byte, 0.4);
    for (size_t i = 0; i < 2; i++)
        offered += (double)plan_bytes(&plan, &plan.jobs[i]) * plan.workers * ns_a_byte /
                   plan.jobs[i].step_ns;
    assert_float_equal(
        offered, 0.4,
        0.001); /* differs from 0.4, because numbers of elements are rounded to integers */
    plan.bytes_scale = 1e-9;
    assert_int_equal(plan_elements(&plan, &plan.jobs[0].model->tensors[0]), 1);
}

static void jitter_is_the_same_in_every_setting_and_another_for_each_rank_and_round(void **state)
{
    struct plan plan = plan_of("resnet50", 2);
    const struct plan_job *job = &plan.jobs[0];
    double sum = 0, first = plan_step_ns(&plan, job, 0, 1);
    assert_true(first == plan_step_ns(&plan, job, 0, 1));
    assert_true(first != plan_step_ns(&plan, job, 1, 1));
    assert_true(first != plan_step_ns(&plan, &plan.jobs[1], 0, 1));
    for (uint32_t round = 0; round < 4000; round++) {
        double step_ns = plan_step_ns(&plan, job, 0, round);
        assert_true(step_ns >= job->step_ns / 2 && step_ns <= job->step_ns * 2);
        sum += step_ns / 4000;
    }
    assert_float_equal(sum / job->step_ns, 1, 0.01);
}

static void a_drawn_figure_is_the_mean_of_the_slowest_worker_over_timed_rounds(void **state)
{
    struct plan plan = plan_of("resnet50", 1);
    const struct plan_job *job = &plan.jobs[0];
    double sum = 0;
    for (uint32_t round = 0; round < 20; round++)
        if (plan_is_timed(round, 20))
            sum += fmax(plan_step_ns(&plan, job, 0, round), plan_step_ns(&plan, job, 1, round));
    assert_float_equal(plan_drawn_ns(&plan, job, 20), sum / 14, 1);
    plan.jitter = 0;
    assert_float_equal(plan_drawn_ns(&plan, job, 20), job->step_ns, 1);
}

static void gradients_are_ready_in_the_backward_pass_alone(void **state)
{
    const struct model_tensor first = {.ready = 0}, last = {.ready = 1};
    assert_float_equal(plan_ready_ns(90, &first), 30, NEAR);
    assert_float_equal(plan_ready_ns(90, &last), 90, NEAR);
}

static void checked_rounds_and_those_behind_them_are_not_timed(void **state)
{
    int checked = 0, timed = 0;
    for (uint32_t round = 0; round < 20; round++) {
        checked += plan_is_checked(round, 20);
        timed += plan_is_timed(round, 20);
        assert_false(plan_is_timed(round, 20) && plan_is_checked(round, 20));
    }
    assert_true(plan_is_checked(0, 20) && plan_is_checked(19, 20) && checked == 3);
    assert_false(plan_is_timed(11, 20));
    assert_int_equal(timed, 14);
}

static void a_status_has_lanes_tasks_and_cpu_time(void **state)
{
    static struct look look;
    const char *text = "{\"tasks\": 9, \"cpu_ns\": 1, \"aggregators\": ["
                       "{\"aggregator\": 1, \"state\": \"up\", \"cpu_ns\": 900, \"lanes\": ["
                       "{\"lane\": 1, \"tasks\": 2, \"cpu_ns\": 500, \"state\": \"open\", \"use\": "
                       "{\"busy_ns\": 3}},"
                       "{\"lane\": 2, \"tasks\": 0, \"cpu_ns\": 7, \"state\": \"parked\"}]},"
                       "{\"aggregator\": 2, \"state\": \"silent\", \"cpu_ns\": 800, \"lanes\": ["
                       "{\"state\": \"closing\", \"cpu_ns\": 70, \"lane\": 9}]}]}";
    assert_int_equal(look_parse_lanes(text, &look), 0);
    assert_int_equal(look.lanes_count, 3);
    assert_true(look.lanes[0].is_open && !look.lanes[1].is_open && look.lanes[2].is_open);
    assert_int_equal(look.lanes[1].cpu_ns, 7);
    assert_int_equal(look.lanes[2].lane, 9);
    assert_int_equal(look.lanes[1].aggregator, 1);
    assert_int_equal(look.lanes[2].aggregator, 2);
    assert_int_equal(look.lanes[2].cpu_ns, 70);
    assert_int_equal(look.lanes[0].tasks, 2);
    assert_int_equal(look.lanes[0].cpu_ns, 500);
    assert_int_equal(look.lanes[1].tasks, 0);
    assert_int_equal(look_parse_lanes("{}", &look), -ENODATA);
    assert_int_equal(look_parse_lanes("{\"aggregators\": 3}", &look), -ENODATA);
    assert_int_equal(look_parse_lanes("", &look), -ENODATA);
}

static void lanes_that_start_and_end_between_two_reads_differ_by_number(void **state)
{
    static const struct look first = {.lanes_count = 3,
                                      .lanes = {{.lane = 1, .cpu_ns = 5000000000},
                                                {.lane = 2, .cpu_ns = 1000000000},
                                                {.lane = 3, .cpu_ns = 2000000000}}};
    static const struct look last = {.lanes_count = 3,
                                     .lanes = {{.lane = 2, .cpu_ns = 1500000000},
                                               /* the counter of this lane has restarted at 0 */
                                               {.lane = 3, .cpu_ns = 1000000000},
                                               {.lane = 4, .cpu_ns = 250000000}}};
    double most_s;
    assert_true(look_cpu_s(&first, &last, &most_s) == 0.75);
    assert_true(most_s == 0.5);
}

static void a_list_of_jobs_has_measured_jobs_and_predictions(void **state)
{
    struct look_job jobs[2];
    const char *text = "{\n \"jobs\": [\n{\n \"job\": \"a-1\",\n \"job_id\": 4,\n"
                       " \"alone_period_ns\": 12,\n \"predicted_loss_ppm\": 340\n},\n"
                       "{\n \"job\": \"b-2\",\n \"alone_period_ns\": 0\n}]}";
    assert_int_equal(look_parse_jobs(text, jobs, 2), 2);
    assert_string_equal(jobs[0].name, "a-1");
    assert_int_equal(jobs[0].alone_period_ns, 12);
    assert_true(jobs[0].has_prediction);
    assert_int_equal(jobs[0].predicted_loss_ppm, 340);
    assert_false(jobs[1].has_prediction);
    assert_int_equal(jobs[1].alone_period_ns, 0);
    assert_int_equal(look_parse_jobs(text, jobs, 1), -E2BIG);
    assert_int_equal(
        look_parse_jobs("{\"jobs\": [{\"job\": \"a\", \"predicted_loss_ppm\": 0}]}", jobs, 2), 1);
    assert_true(jobs[0].has_prediction); /* a predicted loss of 0 */
    assert_int_equal(look_parse_jobs("{\"jobs\"", jobs, 2), -EBADMSG);
}

static void tables_have_counts_or_are_an_error(void **state)
{
    struct look_table tables[2];
    const char *text = "{\"jobs\": [{\"job\": \"a\", \"tables\": [{\"table\": \"t\", \"rows\": 7, "
                       "\"bytes\": 800, \"births\": 8, \"pushed_keys\": 9}]}]}";
    assert_int_equal(look_parse_tables(text, tables, 2), 1);
    assert_int_equal(tables[0].rows, 7);
    assert_int_equal(tables[0].bytes, 800);
    assert_int_equal(tables[0].births, 8);
    assert_int_equal(tables[0].pushed_keys, 9);
    text = "{\"jobs\": [{\"job\": \"a\", \"tables\": [{\"table\": \"t\"}]}]}";
    assert_int_equal(look_parse_tables(text, tables, 2), -ENODATA);
    assert_int_equal(look_parse_tables("{\"jobs\": [{\"job\": \"a\"}]}", tables, 2), -ENODATA);
    assert_int_equal(look_parse_tables("{", tables, 2), -ENODATA);
}

static void events_of_the_service_keep_their_order_and_the_newest_stay(void **state)
{
    static struct look_events events;
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    fputs("{\"events\": [", out);
    for (int i = 0; i < LOOK_EVENTS_MAX + 2; i++)
        fprintf(out, "%s{\"at_s\": %d.5, \"kind\": \"open\", \"text\": \"lane %d\"}", i ? "," : "",
                i, i);
    fputs("]}", out);
    fclose(out);
    assert_int_equal(look_parse_events(text, &events), 0);
    assert_int_equal(events.count, LOOK_EVENTS_MAX);
    assert_true(events.events[0].at_s == 2.5);
    assert_string_equal(events.events[LOOK_EVENTS_MAX - 1].text, "lane 65");
    assert_string_equal(events.events[0].kind, "open");
    free(text);
    assert_int_equal(look_parse_events("{}", &events), 0);
    assert_int_equal(events.count, 0);
    assert_int_equal(look_parse_events("", &events), -EBADMSG);
}

static void shares_of_a_job_are_bytes_by_lane(void **state)
{
    struct look_share shares[2];
    const char *text = "{\"jobs\": [{\"job\": \"a\", \"lanes\": [{\"lane\": 3, \"bytes\": 70}, "
                       "{\"lane\": 5, \"bytes\": 0}, {\"lane\": 9, \"bytes\": 1}]}]}";
    assert_int_equal(look_parse_shares(text, shares, 2), 2);
    assert_int_equal(shares[0].lane, 3);
    assert_int_equal(shares[0].bytes, 70);
    assert_int_equal(shares[1].bytes, 0);
    assert_int_equal(look_parse_shares("{\"jobs\": []}", shares, 2), -ENODATA);
    assert_int_equal(look_parse_shares("", shares, 2), -ENODATA);
}

/* --- reading the status of a service --- */

/* Creates a program that the bench calls in place of `gradpool`. The program appends its first
 * argument as a line to the file "asked", and then runs the shell commands `answers`. */
static struct service service_that(const char *answers)
{
    struct service s = {.folder = "/tmp/gradpool-test-look-XXXXXX", .endpoint = "unix:none"};
    assert_non_null(mkdtemp(s.folder));
    assert_true(snprintf(s.program, sizeof s.program, "%s/gradpool", s.folder) <
                (int)sizeof s.program);
    FILE *script = fopen(s.program, "w");
    assert_non_null(script);
    fprintf(script, "#!/bin/sh\ncd %s\necho $1 >> asked\n%s\n", s.folder, answers);
    fclose(script);
    assert_int_equal(chmod(s.program, 0700), 0);
    return s;
}

static int times_asked(const struct service *s)
{
    char path[PATH_MAX + 16], line[64];
    int count = 0;
    snprintf(path, sizeof path, "%s/asked", s->folder);
    FILE *asked = fopen(path, "r");
    assert_non_null(asked);
    while (fgets(line, sizeof line, asked))
        count++;
    fclose(asked);
    return count;
}

static void forget(const struct service *s)
{
    static const char *const names[] = {"asked", "gradpool", "look", "look-errors"};
    char path[PATH_MAX + 16];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", s->folder, names[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(s->folder), 0);
}

#define STATUS "echo '{\"aggregators\": [{\"lanes\": [{\"lane\": 4}]}]}'; "

static void a_service_that_is_not_well_has_answered(void **state)
{
    static struct look look;
    struct service s = service_that(STATUS "exit 3");
    assert_int_equal(look_at_lanes(&s, &look), 0);
    assert_int_equal(look.lanes[0].lane, 4);
    assert_int_equal(times_asked(&s), 1);
    forget(&s);
}

static void a_failed_read_of_the_status_is_tried_again(void **state)
{
    static struct look look;
    struct service s =
        service_that("test $(wc -l < asked) -lt 3 && { echo busy >&2; exit 1; }\n" STATUS);
    assert_int_equal(look_at_lanes(&s, &look), 0);
    assert_int_equal(times_asked(&s), 3);
    forget(&s);
}

static void a_repeated_failure_is_reported_with_its_reason(void **state)
{
    static struct look look;
    struct service s = service_that("echo gradpool: nobody is there >&2; exit 3");
    char said[512] = "";
    FILE *file = tmpfile();
    int errors = dup(STDERR_FILENO);
    assert_true(file && errors >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    int r = look_at_lanes(&s, &look);
    dup2(errors, STDERR_FILENO);
    close(errors);
    rewind(file);
    assert_non_null(fgets(said, sizeof said, file));
    fclose(file);
    assert_int_equal(r, -EIO);
    assert_non_null(strstr(said, "gradpool status failed"));
    assert_non_null(strstr(said, "exit code 3: gradpool: nobody is there\n"));
    assert_int_equal(times_asked(&s), 5);
    forget(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_interval_of_five_figures_has_all_five_at_93_75_percent),
        cmocka_unit_test(more_figures_narrow_the_interval_at_90_percent_or_more),
        cmocka_unit_test(too_few_figures_give_an_interval_with_its_confidence),
        cmocka_unit_test(a_quantile_is_a_figure_that_was_measured),
        cmocka_unit_test(a_mix_starts_over_and_each_job_has_a_name_of_its_own),
        cmocka_unit_test(a_model_that_is_not_in_the_tables_is_named),
        cmocka_unit_test(jobs_come_in_the_first_quarter_leave_in_the_last_and_all_meet_between),
        cmocka_unit_test(tensors_are_scaled_until_all_jobs_offer_the_load),
        cmocka_unit_test(jitter_is_the_same_in_every_setting_and_another_for_each_rank_and_round),
        cmocka_unit_test(a_drawn_figure_is_the_mean_of_the_slowest_worker_over_timed_rounds),
        cmocka_unit_test(gradients_are_ready_in_the_backward_pass_alone),
        cmocka_unit_test(checked_rounds_and_those_behind_them_are_not_timed),
        cmocka_unit_test(a_service_that_is_not_well_has_answered),
        cmocka_unit_test(a_failed_read_of_the_status_is_tried_again),
        cmocka_unit_test(a_repeated_failure_is_reported_with_its_reason),
        cmocka_unit_test(a_status_has_lanes_tasks_and_cpu_time),
        cmocka_unit_test(shares_of_a_job_are_bytes_by_lane),
        cmocka_unit_test(lanes_that_start_and_end_between_two_reads_differ_by_number),
        cmocka_unit_test(tables_have_counts_or_are_an_error),
        cmocka_unit_test(events_of_the_service_keep_their_order_and_the_newest_stay),
        cmocka_unit_test(a_list_of_jobs_has_measured_jobs_and_predictions),
    };
    return cmocka_run_group_tests_name("savings", tests, load, unload);
}
