/* Tests the simulator's input: valid and broken traces and tables of models, and jobs drawn without
 * a trace. */
#include "bench/sim/input/csv.h"
#include "bench/sim/input/workload.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TRACE_HEAD "job_id,submit_s,duration_s,gpus,workers,model\n"
#define PROFILES_HEAD "model,iter_ms,default_for\n"
#define TENSORS_HEAD "model,tensor_index,name,elements,ready_frac\n"

static char folder[PATH_MAX];
static struct models known;

static const char *write_file(const char *name, const char *text)
{
    static char path[PATH_MAX + 64];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
    return path;
}

static int set_up(void **state)
{
    char error[TABLE_ERROR_BYTES];

    snprintf(folder, sizeof(folder), "%s/gradpool-sim-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    write_file("profiles.csv", PROFILES_HEAD "small,100,v100\nsmall,170,p100\n");
    write_file("small.csv", TENSORS_HEAD "small,0,b,10,0.1\nsmall,1,a,1000,1\n");
    return models_load(&known, folder, error);
}

static int tear_down(void **state)
{
    static const char *const names[] = {"profiles.csv", "small.csv", "trace.csv"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[PATH_MAX + 64];

        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        unlink(path);
    }
    models_fini(&known);
    return rmdir(folder);
}

static struct workload read_trace(const char *text, double hours)
{
    char error[TABLE_ERROR_BYTES] = "";
    struct workload workload;

    if (workload_read(&workload, write_file("trace.csv", text), hours, &known, error) < 0)
        fail_msg("%s", error);
    return workload;
}

static void refuse_trace(const char *text, const char *part)
{
    char error[TABLE_ERROR_BYTES] = "";
    struct workload workload;

    assert_int_equal(workload_read(&workload, write_file("trace.csv", text), 0, &known, error),
                     -EINVAL);
    assert_null(workload.jobs);
    assert_non_null(strstr(error, "trace.csv:"));
    if (!strstr(error, part))
        fail_msg("\"%s\" does not say \"%s\"", error, part);
}

static void a_trace_gives_its_jobs_of_two_or_more_workers(void **state)
{
    struct workload w = read_trace(TRACE_HEAD "a,0,10,1,1,unheard\r\nb,5.5,20,2,2,small\r\n"
                                              "\nc,3700,9000,8,8,small",
                                   0);

    assert_int_equal(w.count, 2);
    assert_int_equal(w.single, 1);
    assert_string_equal(w.jobs[0].name, "b");
    assert_int_equal(w.jobs[0].submit_ns, 5500000000);
    assert_int_equal(w.jobs[0].end_ns, 25500000000);
    assert_int_equal(w.jobs[1].workers, 8);
    assert_ptr_equal(w.jobs[1].model, &known.all[0]);
    /* the trace ends with the hour in which the last job started */
    assert_int_equal(w.end_ns, 2 * NS_PER_HOUR);
    assert_int_equal(w.jobs[1].end_ns, w.end_ns);
    workload_fini(&w);
}

static void the_clock_may_be_stopped_sooner(void **state)
{
    struct workload w = read_trace(TRACE_HEAD "b,0,20000,2,2,small\nc,3700,9000,8,8,small\n", 1);

    assert_int_equal(w.count, 1);
    assert_int_equal(w.end_ns, NS_PER_HOUR);
    assert_int_equal(w.jobs[0].end_ns, NS_PER_HOUR);
    workload_fini(&w);
}

static void a_broken_trace_is_refused_with_its_place(void **state)
{
    refuse_trace("", "expected a first line");
    refuse_trace("job_id,submit_s,duration_s,model\n", "trace.csv:1: expected a column 'workers'");
    refuse_trace(TRACE_HEAD "a,0,1,2,2\n", "trace.csv:2: expected 6 fields");
    refuse_trace(TRACE_HEAD "a,0,1,2,2,small,x\n", "there are 7");
    refuse_trace(TRACE_HEAD "a,0,1,2,2,small\nb,x,1,2,2,small\n",
                 "trace.csv:3: submit_s: expected a number from 0 to 1e+09, got 'x'");
    refuse_trace(TRACE_HEAD "a,,1,2,2,small\n", "got ''");
    refuse_trace(TRACE_HEAD "a,0,-1,2,2,small\n", "duration_s: expected");
    refuse_trace(TRACE_HEAD "a,0,nan,2,2,small\n", "duration_s: expected");
    refuse_trace(TRACE_HEAD "a,0,1,2,2.5,small\n", "workers: expected a whole number, got 2.5");
    refuse_trace(TRACE_HEAD "a,0,1,2,0,small\n", "workers: expected a number from 1 to 4096");
    refuse_trace(TRACE_HEAD "a,0,1,2,1e9,small\n", "workers: expected a number");
    refuse_trace(TRACE_HEAD "a,0,1,2,2,large\n", "expected one with a table, got 'large'");
    refuse_trace(TRACE_HEAD "a,9,1,2,2,small\nb,8,1,2,2,small\n", "in order of submission");
    refuse_trace(TRACE_HEAD "a,0,1,1,1,small\n", "expected a job of two or more workers");
    refuse_trace("a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a\n",
                 "expected at most 32 columns");
}

static void a_missing_file_is_named(void **state)
{
    char error[TABLE_ERROR_BYTES] = "";
    struct workload workload;
    struct models models;

    assert_int_equal(workload_read(&workload, "/nowhere/t.csv", 0, &known, error), -ENOENT);
    assert_string_equal(error, "/nowhere/t.csv: No such file or directory");
    assert_int_equal(models_load(&models, "/nowhere", error), -ENOENT);
    assert_string_equal(error, "/nowhere/profiles.csv: No such file or directory");
}

static void a_model_has_tensors_and_the_step_time_of_its_default(void **state)
{
    assert_int_equal(known.count, 1);
    assert_ptr_equal(models_find(&known, "small"), &known.all[0]);
    assert_null(models_find(&known, "large"));
    assert_int_equal(known.all[0].step_ns, 100000000);
    assert_int_equal(known.all[0].tensors_count, 2);
    assert_int_equal(known.all[0].elements, 1010);
    assert_int_equal(known.all[0].tensors[1].elements, 1000);
}

static void refuse_models(const char *profiles, const char *tensors, const char *part)
{
    char error[TABLE_ERROR_BYTES] = "";
    struct models models;

    write_file("profiles.csv", profiles);
    write_file("small.csv", tensors);
    assert_int_equal(models_load(&models, folder, error), -EINVAL);
    assert_null(models.all);
    if (!strstr(error, part))
        fail_msg("\"%s\" does not say \"%s\"", error, part);
}

static void broken_tables_of_models_are_refused_with_their_place(void **state)
{
    const char *profiles = PROFILES_HEAD "small,100,v100\n", *tensors = TENSORS_HEAD "s,0,b,10,1\n";

    refuse_models(PROFILES_HEAD, tensors, "profiles.csv:1: expected a row with default_for");
    refuse_models(PROFILES_HEAD "small,0,v100\n", tensors, "profiles.csv:2: iter_ms: expected");
    refuse_models(PROFILES_HEAD "small,1,v100\nsmall,2,v100\n", tensors, "this is the second");
    refuse_models(PROFILES_HEAD "a-name-that-is-much-too-long-for-any-model,1,v100\n", tensors,
                  "expected a name of at most 39 bytes");
    refuse_models(profiles, TENSORS_HEAD, "small.csv:1: expected a row for each tensor");
    refuse_models(profiles, TENSORS_HEAD "s,0,b,0,1\n", "small.csv:2: elements: expected");
    refuse_models(profiles, TENSORS_HEAD "s,0,b,9,0.5\ns,1,a,9,0.4\n",
                  "small.csv:3: ready_frac: expected a number from 0.5 to 1");
}

static void a_seed_draws_the_same_jobs_again_and_another_seed_others(void **state)
{
    char error[TABLE_ERROR_BYTES];
    struct workload a, b, c;

    assert_int_equal(workload_generate(&a, 5, 168, &known, error), 0);
    assert_int_equal(workload_generate(&b, 5, 168, &known, error), 0);
    assert_int_equal(workload_generate(&c, 6, 168, &known, error), 0);
    assert_in_range(a.count, 500, 850);
    assert_int_equal(a.count, b.count);
    assert_memory_equal(a.jobs, b.jobs, a.count * sizeof(*a.jobs));
    assert_int_not_equal(a.jobs[0].submit_ns, c.jobs[0].submit_ns);
    for (size_t i = 0; i < a.count; i++) {
        assert_in_range(a.jobs[i].workers, 2, 32);
        assert_true(a.jobs[i].submit_ns < a.jobs[i].end_ns);
        assert_true(a.jobs[i].end_ns <= a.end_ns);
        assert_true(i == 0 || a.jobs[i - 1].submit_ns <= a.jobs[i].submit_ns);
    }
    workload_fini(&a);
    workload_fini(&b);
    workload_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trace_gives_its_jobs_of_two_or_more_workers),
        cmocka_unit_test(the_clock_may_be_stopped_sooner),
        cmocka_unit_test(a_broken_trace_is_refused_with_its_place),
        cmocka_unit_test(a_missing_file_is_named),
        cmocka_unit_test(a_model_has_tensors_and_the_step_time_of_its_default),
        cmocka_unit_test(broken_tables_of_models_are_refused_with_their_place),
        cmocka_unit_test(a_seed_draws_the_same_jobs_again_and_another_seed_others),
    };

    return cmocka_run_group_tests_name("sim_input", tests, set_up, tear_down);
}
