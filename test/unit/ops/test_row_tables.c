/* Tests how operators see tables of keyed rows: the copy of a message, its text, JSON and
 * metrics. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "svc/ops/answer/answer.h"
#include "svc/ops/answer/row_tables.h"
#include "svc/ops/web/metrics_tables.h"

#include <stdlib.h>
#include <string.h>

#define WIRE(type) Gradpool__Wire__##type

static WIRE(TableSpec) spec;
static WIRE(TableCounts) counts;
static WIRE(TableView) message, *list = &message;
static WIRE(JobView) job;

/* Sets a job with one table: rank 3 is two clocks behind. */
static int setup(void **state)
{
    gradpool__wire__table_spec__init(&spec);
    gradpool__wire__table_counts__init(&counts);
    gradpool__wire__table_view__init(&message);
    gradpool__wire__job_view__init(&job);
    spec.name = "users";
    spec.dim = 32;
    spec.shards = 64;
    spec.rule = 2;
    spec.consistency = 2;
    spec.staleness = 4;
    counts.rows = 1000;
    counts.bytes = 3 << 20;
    counts.births = 1001;
    counts.pulled_keys = 50;
    counts.pushed_keys = 60;
    counts.minimum_clock = 12;
    counts.largest_clock = 14;
    counts.behind_rank = 3;
    message.spec = &spec;
    message.counts = &counts;
    job.tables = &list;
    job.n_tables = 1;
    return 0;
}

static struct view_table view(void)
{
    struct view_tables *tables;
    struct view_table first;
    assert_int_equal(row_tables_view(&job, &tables), 0);
    assert_int_equal(tables->count, 1);
    first = tables->each[0];
    free(tables);
    return first;
}

/* Returns the tables of a job: `first`, and `second` unless it is NULL. The caller frees the
 * result. */
static struct view_tables *tables_of(const struct view_table *first,
                                     const struct view_table *second)
{
    struct view_tables *tables = calloc(1, sizeof *tables + 2 * sizeof *tables->each);
    tables->each[tables->count++] = *first;
    if (second)
        tables->each[tables->count++] = *second;
    return tables;
}

static void has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("no '%s' in %s", part, text);
}

/* Returns the output of one of the functions of answer.h. The caller frees it. */
#define output_of(print, ...)                          \
    ({                                                 \
        char *text_;                                   \
        size_t bytes_;                                 \
        FILE *out_ = open_memstream(&text_, &bytes_);  \
        assert_int_equal(print(__VA_ARGS__, out_), 0); \
        fclose(out_);                                  \
        text_;                                         \
    })

static void a_copy_has_the_terms_and_counts(void **state)
{
    struct view_table table = view();
    assert_string_equal(table.table, "users");
    assert_string_equal(table.rule, "adagrad");
    assert_string_equal(table.consistency, "ssp:4");
    assert_int_equal(table.births, 1001);
    assert_int_equal(row_table_behind(&table), 2);
    spec.consistency = 0;
    assert_string_equal(view().consistency, "bsp");
    spec.consistency = spec.rule = 99;
    assert_string_equal(view().consistency, "?");
    assert_string_equal(view().rule, "?");
}

static void a_message_with_clocks_in_the_wrong_order_has_no_rank_behind(void **state)
{
    counts.largest_clock = 2;
    struct view_table table = view();
    assert_int_equal(table.largest_clock, 12);
    assert_int_equal(row_table_behind(&table), 0);
}

static void a_table_without_terms_is_left_out(void **state)
{
    struct view_tables *tables;
    message.spec = NULL;
    assert_int_equal(row_tables_view(&job, &tables), 0);
    assert_int_equal(tables->count, 0);
    free(tables);
    job.n_tables = 0;
    assert_int_equal(row_tables_view(&job, &tables), 0);
    assert_null(tables);
}

static struct view_job job_with(struct view_tables *tables)
{
    return (struct view_job){.tenant = "acme",
                             .job = "words",
                             .job_id = 3,
                             .state = "training",
                             .workers = 4,
                             .tables = tables};
}

static void jobs_are_shown_with_their_number_of_tables(void **state)
{
    struct view_table table = view();
    struct view_job both[] = {job_with(tables_of(&table, NULL)), job_with(NULL)};
    char *text = output_of(ops_jobs_table, (&(struct view_jobs){both, 2}));
    has(text, "LENT  TABLES  LANES\n");
    free(text);
    text = output_of(ops_jobs_table, (&(struct view_jobs){&both[1], 1}));
    assert_null(strstr(text, "TABLES"));
    free(text);
    free(both[0].tables);
}

static void one_job_is_shown_with_its_tables(void **state)
{
    struct view_table table = view();
    struct view_job shown = job_with(tables_of(&table, NULL));
    char *text = output_of(ops_job_table, &shown);
    has(text, "TABLE  DIM  RULE     CONSISTENCY  SHARDS  ROWS   SIZE  BIRTHS  PULLED  PUSHED  "
              "CLOCK  BEHIND       COPY\n");
    has(text, "users   32  adagrad  ssp:4            64  1000  3 MiB    1001      50      60  "
              "   12  rank 3 by 2  -\n");
    free(text);
    free(shown.tables);
}

static size_t lines_of(const char *text)
{
    size_t lines = 0;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

static void tables_of_all_jobs_are_listed(void **state)
{
    struct view_table table = view();
    struct view_job jobs[] = {job_with(NULL), job_with(tables_of(&table, NULL))};
    char *text = output_of(ops_tables_table, (&(struct view_jobs){jobs, 2}));
    has(text, "TENANT  JOB    TABLE  DIM");
    has(text, "\nacme    words  users   32  adagrad");
    assert_int_equal(lines_of(text), 2); /* the titles, and one job with a table */
    free(text);
    text = output_of(ops_tables_json, (&(struct view_jobs){jobs, 2}));
    has(text, "\"tenant\": \"acme\"");
    has(text, "\"births\": 1001");
    free(text);
    free(jobs[1].tables);
}

static void unknown_counts_are_dashes_and_a_failure_has_its_reason(void **state)
{
    message.counts = NULL;
    message.failure = "table 'users' has lost shard 7\033";
    struct view_table table = view();
    struct view_job shown = job_with(tables_of(&table, NULL));
    char *text = output_of(ops_job_table, &shown);
    has(text, "     -     -       -       -       -      -  -       -\n");
    has(text, "failed: table 'users' has lost shard 7?\n");
    free(text);
    text = output_of(ops_jobs_json, (&(struct view_jobs){&shown, 1}));
    has(text, "\"failure\": \"table 'users' has lost shard 7");
    assert_null(strstr(text, "births"));
    free(text);
    free(shown.tables);
}

static void tables_that_were_left_out_are_counted(void **state)
{
    struct view_tables *tables;
    job.tables_left_out = 17;
    assert_int_equal(row_tables_view(&job, &tables), 0);
    assert_int_equal(tables->left_out, 17);
    struct view_job shown = job_with(tables);
    char *text = output_of(ops_tables_table, (&(struct view_jobs){&shown, 1}));
    has(text, "\n17 more tables are not shown, because one message has no room for them");
    free(text);
    text = output_of(ops_jobs_table, (&(struct view_jobs){&shown, 1}));
    has(text, "    18  ");
    free(text);
    text = output_of(ops_jobs_json, (&(struct view_jobs){&shown, 1}));
    has(text, "\"tables_left_out\": 17");
    free(text);
    free(tables);
    job.n_tables = 0;
    assert_int_equal(row_tables_view(&job, &tables), 0);
    assert_int_equal(tables->left_out, 17);
    free(tables);
}

static void json_has_the_counts(void **state)
{
    struct view_table table = view();
    struct view_job shown = job_with(tables_of(&table, NULL));
    char *text = output_of(ops_jobs_json, (&(struct view_jobs){&shown, 1}));
    has(text, "\"table\": \"users\"");
    has(text, "\"consistency\": \"ssp:4\"");
    has(text, "\"bytes\": 3145728");
    has(text, "\"births\": 1001");
    has(text, "\"minimum_clock\": 12");
    has(text, "\"largest_clock\": 14");
    has(text, "\"behind_rank\": 3");
    free(text);
    counts.largest_clock = 12;
    shown.tables->each[0] = view();
    text = output_of(ops_jobs_json, (&(struct view_jobs){&shown, 1}));
    assert_null(strstr(text, "behind_rank"));
    free(text);
    free(shown.tables);
}

/* The words are the same in all outputs. */
static void the_state_of_a_copy_is_shown_with_its_fault(void **state)
{
    static const char *const words[] = {"whole", "copying", "promoting", "no copy"};
    char json[32];
    message.copy_fault = "a block\033 does not fit";
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++) {
        message.copy = GRADPOOL__WIRE__TABLE_COPY_STATE__TABLE_COPY_WHOLE + i;
        struct view_table table = view();
        assert_string_equal(table.copy, words[i]);
        struct view_job shown = job_with(tables_of(&table, NULL));
        char *text = output_of(ops_job_table, &shown);
        has(text, words[i]);
        has(text, ": table users has no whole copy: a block? does not fit\n");
        free(text);
        text = output_of(ops_jobs_json, (&(struct view_jobs){&shown, 1}));
        snprintf(json, sizeof json, "\"copy\": \"%s\"", words[i]);
        has(text, json);
        has(text, "\"copy_fault\": \"a block");
        free(text);
        free(shown.tables);
    }
    message.copy = GRADPOOL__WIRE__TABLE_COPY_STATE__TABLE_COPY_UNWANTED;
    struct view_table table = view();
    struct view_job shown = job_with(tables_of(&table, NULL));
    char *text = output_of(ops_jobs_json, (&(struct view_jobs){&shown, 1}));
    assert_null(strstr(text, "copy"));
    free(text);
    free(shown.tables);
}

static void explain_shows_the_tables(void **state)
{
    WIRE(ExplainedJob) explained = GRADPOOL__WIRE__EXPLAINED_JOB__INIT, *jobs[] = {&explained};
    WIRE(ExplainReply) reply = GRADPOOL__WIRE__EXPLAIN_REPLY__INIT;
    explained.job = &job;
    reply.jobs = jobs;
    reply.n_jobs = 1;
    char *text = output_of(ops_explain_text, &reply);
    has(text, "users   32  adagrad  ssp:4");
    free(text);
    text = output_of(ops_explain_json, &reply);
    has(text, "\"pushed_keys\": 60");
    free(text);
    job.n_tables = 0;
    text = output_of(ops_explain_text, &reply);
    assert_null(strstr(text, "CONSISTENCY"));
    free(text);
    text = output_of(ops_explain_json, &reply);
    assert_null(strstr(text, "tables"));
    free(text);
}

static char *metrics_of(struct view_tables *tables)
{
    struct view_job shown = job_with(tables);
    struct snapshot s = {.jobs = {&shown, 1}};
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_int_equal(metrics_print_tables(&s, out), tables->count);
    fclose(out);
    return text;
}

static void metrics_have_a_series_for_each_table(void **state)
{
#define LABELS "{tenant=\"acme\",job=\"words\",table=\"users\"} "
    struct view_table users = view(), items = view();
    items.table = "it\"ems";
    items.is_counted = false;
    struct view_tables *tables = tables_of(&users, &items);
    char *text = metrics_of(tables);
    has(text, "gradpool_table_rows" LABELS "1000\n");
    has(text, "gradpool_table_bytes" LABELS "3145728\n");
    has(text, "gradpool_table_births_total" LABELS "1001\n");
    has(text, "gradpool_table_pulled_keys_total" LABELS "50\n");
    has(text, "gradpool_table_pushed_keys_total" LABELS "60\n");
    has(text, "gradpool_table_minimum_clock" LABELS "12\n");
    has(text, "gradpool_table_largest_clock" LABELS "14\n");
    has(text, "gradpool_table_behind_rank" LABELS "3\n");
    assert_null(strstr(text, "ems")); /* no counts yet */
    assert_null(strstr(text, "gradpool_table_copy_is_whole{"));
    free(text);
    tables->each[0].copy = "whole";
    tables->each[1].copy = "copying";
    text = metrics_of(tables);
    has(text, "gradpool_table_copy_is_whole" LABELS "1\n");
    has(text, "table=\"it\\\"ems\"} 0\n");
    free(text);
    tables->each[0].largest_clock = tables->each[1].largest_clock = 12;
    tables->each[1].is_counted = true;
    text = metrics_of(tables);
    assert_null(strstr(text, "behind_rank{"));
    has(text, ",table=\"it\\\"ems\"} 1000\n");
    free(text);
    free(tables);
}

int main(void)
{
#define WITH(test) cmocka_unit_test_setup(test, setup)
    const struct CMUnitTest tests[] = {
        WITH(a_copy_has_the_terms_and_counts),
        WITH(a_message_with_clocks_in_the_wrong_order_has_no_rank_behind),
        WITH(a_table_without_terms_is_left_out),
        WITH(jobs_are_shown_with_their_number_of_tables),
        WITH(one_job_is_shown_with_its_tables),
        WITH(tables_of_all_jobs_are_listed),
        WITH(unknown_counts_are_dashes_and_a_failure_has_its_reason),
        WITH(tables_that_were_left_out_are_counted),
        WITH(json_has_the_counts),
        WITH(the_state_of_a_copy_is_shown_with_its_fault),
        WITH(explain_shows_the_tables),
        WITH(metrics_have_a_series_for_each_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
