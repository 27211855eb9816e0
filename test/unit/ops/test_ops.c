/* Tests views as JSON and as tables. Every figure has its name, and columns are aligned. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "svc/ops/answer/answer.h"
#include "svc/ops/answer/table.h"

#include <stdlib.h>
#include <string.h>

static struct view_lane lane = {.lane = 3,
                                .core = 1,
                                .pu = 2,
                                .numa = -1,
                                .tasks = 4,
                                .jobs = 5,
                                .cpu_ns = 1500000000,
                                .arena_bytes = 6144,
                                .shm = "@a",
                                .ofi = "h:1",
                                .use = {.pushed_bytes = 1 << 20, .rounds = 9, .busy_ns = 7}};
static struct view_aggregator aggregator = {.aggregator = 2,
                                            .pid = 77,
                                            .node = "node7",
                                            .state = "up",
                                            .cpu_ns = 8,
                                            .lanes = &lane,
                                            .lanes_count = 1};
static const struct view_status status = {.endpoint = "gradpool://h:7077",
                                          .state_dir = "/s",
                                          .policy = "hash",
                                          .pid = 42,
                                          .jobs = 1,
                                          .tasks = 4,
                                          .uptime_ns = UINT64_C(7384) * 1000000000,
                                          .cpu_ns = 11,
                                          .incarnation = 12,
                                          .aggregators = &aggregator,
                                          .aggregators_count = 1};

static uint32_t lanes[] = {3, 10};
static struct view_worker ranks[] = {{.rank = 0, .pid = 5, .node = "n", .state = "joined"},
                                     {.rank = 1, .pid = 6, .node = "n", .state = "lost"},
                                     {0}};
static struct view_job jobs_list[] = {
    {.job = "r\xc3\xa9s",
     .state = "failed",
     .failure = "rank 1 is gone",
     .job_id = 1,
     .workers = 2,
     .tensors = 3,
     .tasks = 4,
     .epoch = 2,
     .tensor_bytes = 4096,
     .lanes = lanes,
     .lanes_count = 2,
     .use = {.heap_bytes = 100, .registered_bytes = 924},
     .measured = {.round = 7, .inputs = 2, .input_squares = 2.5, .result_squares = 1.0 / 0.0},
     .ranks = ranks},
    {.tenant = "acme", .job = "a-much-longer-name", .state = "training", .job_id = 2}};
static const struct view_jobs jobs = {.jobs = jobs_list, .jobs_count = 2};

/* Stores the output of `print` in `text`. The caller frees it. */
#define PRINT(text, print, view)                       \
    do {                                               \
        size_t bytes_;                                 \
        FILE *out_ = open_memstream(&(text), &bytes_); \
        assert_int_equal(print(view, out_), 0);        \
        fclose(out_);                                  \
    } while (0)

static void has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("no %s in %s", part, text);
}

static void status_json_has_every_field_under_its_name(void **state)
{
    char *text;
    PRINT(text, ops_status_json, &status);
    has(text, "\"policy\": \"hash\",");
    has(text, "\"uptime_ns\": 7384000000000,");
    has(text, "\"incarnation\": 12,");
    has(text, "\"silent_ns\": 0,");
    has(text, "\"pid\": 77,");
    has(text, "\"state\": \"up\",");
    has(text, "\"numa\": -1,");
    has(text, "\"arena_bytes\": 6144,");
    has(text, "\"pushed_bytes\": 1048576,");
    free(text);
}

static void a_silent_aggregator_is_shown_with_the_time(void **state)
{
    struct view_aggregator hung = aggregator;
    struct view_status shown = status;
    char *text;
    hung.state = "silent";
    hung.silent_ns = UINT64_C(4100000000);
    shown.aggregators = &hung;
    PRINT(text, ops_status_table, &shown);
    has(text, "silent 4.1 s");
    free(text);
    PRINT(text, ops_status_json, &shown);
    has(text, "\"silent_ns\": 4100000000,");
    free(text);
}

static void jobs_json_has_workers_lanes_and_failure(void **state)
{
    char *text;
    PRINT(text, ops_jobs_json, &jobs);
    has(text, "\"tenant\": \"\",");
    has(text, "\"tenant\": \"acme\",");
    has(text, "\"job\": \"r\\u00E9s\","); /* also C1 control characters must not reach a terminal */
    has(text, "\"failure\": \"rank 1 is gone\",");
    has(text, "\"failure\": \"\",");
    has(text, "\"lanes\": [\n        3,\n        10\n      ],");
    has(text, "\"registered_bytes\": 924,");
    has(text, "\"measured\": {\n");
    has(text, "\"input_squares\": 2.5,");
    has(text, "\"result_squares\": null,"); /* the value is infinite */
    has(text, "\"loss\": null");            /* the service reported no loss */
    has(text, "\"state\": \"lost\"");
    free(text);
}

static void figures_of_a_job_that_are_not_known_are_left_out_of_the_json(void **state)
{
    static const char *const names[] = {"period_ns", "alone_period_ns",    "lane_ns",
                                        "loss_ppm",  "predicted_loss_ppm", "loss_limit_ppm"};
    struct view_job known = {
        .job = "a", .state = "training", .period_ns = 1000, .alone_period_ns = 1000, .lane_ns = 10};
    struct view_jobs shown = {.jobs = &known, .jobs_count = 1};
    char *text;
    PRINT(text, ops_jobs_json, &jobs);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(text, names[i]))
            fail_msg("%s is told", names[i]);
    free(text);
    PRINT(text, ops_jobs_json, &shown);
    has(text, "\"period_ns\": 1000,");
    has(text, "\"alone_period_ns\": 1000,");
    has(text, "\"lane_ns\": 10,");
    has(text, "\"loss_ppm\": 0,"); /* the loss is known to be zero */
    assert_null(strstr(text, "predicted_loss_ppm"));
    free(text);
    known.is_predicted = true;
    PRINT(text, ops_jobs_json, &shown);
    has(text, "\"predicted_loss_ppm\": 0,");
    free(text);
}

static void no_jobs_are_an_empty_list(void **state)
{
    static const struct view_jobs none = {0};
    char *text;
    PRINT(text, ops_jobs_json, &none);
    assert_string_equal(text, "{\n  \"jobs\": []\n}\n");
    free(text);
}

static void bytes_that_are_not_utf8_do_not_break_the_json(void **state)
{
    struct view_job bad = {.job = "\xff\xfe", .state = "joining"};
    const struct view_jobs view = {.jobs = &bad, .jobs_count = 1};
    char *text;
    PRINT(text, ops_jobs_json, &view);
    has(text, "\"job\": \"?\",");
    free(text);
}

/* A tensor may have any UTF-8 name. */
static void no_control_character_of_a_name_reaches_the_terminal(void **state)
{
    static const char *const titles[] = {"TENSOR", NULL};
    struct table table;
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    table_init(&table, titles);
    table_add(&table, "%s", "\x1b]0;owned\x07\nrow \xc2\x9b 2J \x7f \xc3\xa4\xc2\xa0 \xe2\x80\xae");
    assert_int_equal(table_print(&table, out), 0);
    fclose(out);
    assert_non_null(strstr(text, "?]0;owned??row ?? 2J ? \xc3\xa4\xc2\xa0 ???\n"));
    free(text);
}

static void the_status_table_reads_well(void **state)
{
    char *text;
    PRINT(text, ops_status_table, &status);
    assert_string_equal(
        text,
        "gradpool://h:7077  pid 42, up 2h03m, policy hash\n"
        "state in /s, start number 12, 1 job, 4 tasks\n\n"
        "AGGREGATOR  NODE   PID  STATE  LANE  CORE  JOBS  TASKS  ROUNDS  TAKEN IN    CPU  MEMORY\n"
        "         2  node7   77  up        3     1     5      4       9     1 MiB  1.5 s   6 "
        "KiB\n");
    free(text);
}

static void columns_count_characters_and_fit_the_widest_cell(void **state)
{
    char *text;
    PRINT(text, ops_jobs_table, &jobs);
    char *second = strchr(text, '\n') + 1, *third = strchr(second, '\n') + 1;
    assert_int_equal(strncmp(text, "TENANT  JOB                 STATE", 33), 0);
    assert_int_equal(strncmp(second, "-       r\xc3\xa9s                 failed", 35), 0);
    assert_int_equal(strncmp(third, "acme    a-much-longer-name  training", 36), 0);
    assert_non_null(strstr(second, "100 B  924 B"));
    assert_non_null(strstr(second, "3,10\n"));
    free(text);
}

static const struct view_limit acme_limits[] = {
    {.name = "tenant-jobs", .used = 2, .most = 3, .is_own = true},
    {.name = "tenant-workers", .used = 2, .most = 16384},
    {.name = "job-bytes", .most = 8192, .is_own = true}};
static const struct view_tenant tenants_list[] = {
    {.tenant = "acme",
     .role = "tenant",
     .state = "active",
     .added_s = 86400,
     .loss_limit_ppm = 25000,
     .cpu_ns = 1500000000,
     .limits = (struct view_limit *)acme_limits,
     .limits_count = 3,
     .jobs = 2},
    {.tenant = "node8", .role = "operator", .state = "revoked", .connections = 7}};
static const struct view_tenants tenants = {(struct view_tenant *)tenants_list, 2};

static void tenants_are_shown_without_their_keys(void **state)
{
    char *text;
    PRINT(text, ops_tenants_table, &tenants);
    assert_string_equal(
        text, "TENANT  ROLE      STATE    ADDED                 LOSS LIMIT  JOBS  CONNECTIONS"
              "  COORDINATOR CPU  QUOTAS OF ITS OWN\n"
              "acme    tenant    active   1970-01-02 00:00 UTC       2.5 %     2            0"
              "            1.5 s  tenant-jobs-max 3, job-bytes-max 8 KiB\n"
              "node8   operator  revoked  1970-01-01 00:00 UTC           -     0            7"
              "            0.0 s  -\n");
    free(text);
    PRINT(text, ops_tenants_json, &tenants);
    assert_ptr_equal(strstr(text, "loss_limit_ppm"), strstr(text, "loss_limit_ppm\": 25000"));
    assert_null(strstr(strstr(text, "loss_limit_ppm") + 1, "loss_limit_ppm"));
    has(text, "\"role\": \"operator\",");
    has(text, "\"added_s\": 86400,");
    has(text, "\"coordinator_cpu_ns\": 1500000000");
    has(text, "\"max\": 3,\n          \"own\": true");
    free(text);
}

static void one_job_is_shown_with_its_workers_and_failure(void **state)
{
    char *text;
    PRINT(text, ops_job_table, &jobs_list[0]);
    assert_non_null(strstr(text, "failed: rank 1 is gone\n"));
    assert_non_null(strstr(text, "RANK  NODE  PID  STATE\n   0  n       5  joined\n"));
    free(text);
}

static void an_explained_job_has_the_time_of_its_first_results(void **state)
{
    Gradpool__Wire__JobView job = GRADPOOL__WIRE__JOB_VIEW__INIT;
    Gradpool__Wire__ExplainedJob explained = GRADPOOL__WIRE__EXPLAINED_JOB__INIT, *list[1];
    Gradpool__Wire__ExplainReply reply = GRADPOOL__WIRE__EXPLAIN_REPLY__INIT;
    char *text;
    explained.job = &job;
    list[0] = &explained;
    reply.jobs = list;
    reply.n_jobs = 1;
    PRINT(text, ops_explain_text, &reply);
    assert_null(strstr(text, "first results"));
    free(text);
    job.feedback_ns = 1234567890;
    PRINT(text, ops_explain_text, &reply);
    has(text, "first results 1.235 s after the job arrived\n");
    free(text);
    PRINT(text, ops_explain_json, &reply);
    has(text, "\"feedback_ns\": 1234567890,");
    free(text);
}

static void output_without_a_reader_is_an_error(void **state)
{
    FILE *out = fopen("/dev/full", "w");
    assert_non_null(out);
    assert_true(ops_status_json(&status, out) < 0);
    fclose(out);
    out = fopen("/dev/full", "w");
    assert_true(ops_status_table(&status, out) < 0);
    fclose(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_json_has_every_field_under_its_name),
        cmocka_unit_test(a_silent_aggregator_is_shown_with_the_time),
        cmocka_unit_test(jobs_json_has_workers_lanes_and_failure),
        cmocka_unit_test(figures_of_a_job_that_are_not_known_are_left_out_of_the_json),
        cmocka_unit_test(no_jobs_are_an_empty_list),
        cmocka_unit_test(bytes_that_are_not_utf8_do_not_break_the_json),
        cmocka_unit_test(the_status_table_reads_well),
        cmocka_unit_test(no_control_character_of_a_name_reaches_the_terminal),
        cmocka_unit_test(columns_count_characters_and_fit_the_widest_cell),
        cmocka_unit_test(tenants_are_shown_without_their_keys),
        cmocka_unit_test(one_job_is_shown_with_its_workers_and_failure),
        cmocka_unit_test(an_explained_job_has_the_time_of_its_first_results),
        cmocka_unit_test(output_without_a_reader_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
