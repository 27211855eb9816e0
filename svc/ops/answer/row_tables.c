/* Texts for tables of keyed rows. `gradpool jobs`, `gradpool explain` and `gradpool table` use the
 * same texts. */
#include "svc/ops/answer/row_tables.h"

#include "svc/base/text.h"
#include "svc/ops/answer/answer.h"
#include "svc/ops/answer/table.h"
#include "svc/wire/table/table_terms.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void row_table_add_bytes(struct table *text, const struct view_table *t)
{
    if (t->is_counted)
        table_add_bytes(text, t->bytes);
    else
        table_add(text, "-");
}

static void row_table_add(struct table *text, const struct view_table *t)
{
    table_add(text, "%s", t->table);
    table_add(text, "%u", t->dim);
    table_add(text, "%s", t->rule);
    table_add(text, "%s", t->consistency);
    table_add(text, "%u", t->shards);
    table_add_known(text, t->is_counted, "%" PRIu64, t->rows);
    row_table_add_bytes(text, t);
    table_add_known(text, t->is_counted, "%" PRIu64, t->births);
    table_add_known(text, t->is_counted, "%" PRIu64, t->pulled_keys);
    table_add_known(text, t->is_counted, "%" PRIu64, t->pushed_keys);
    table_add_known(text, t->is_counted, "%" PRIu64, t->minimum_clock);
    table_add_known(text, row_table_behind(t) > 0, "rank %u by %" PRIu64, t->behind_rank,
                    row_table_behind(t));
    table_add(text, "%s", t->copy ? t->copy : "-");
}

/* Prints the reason of a failure without control bytes, because the reason may contain the table's
 * name, which a user has chosen. */
static int row_table_print_failure(const struct view_table *t, FILE *out)
{
    char *tamed = *t->failure ? strdup(t->failure) : NULL;
    if (!*t->failure)
        return 0;
    if (!tamed)
        return -ENOMEM;
    text_disarm(tamed);
    fprintf(out, "failed: %s\n", tamed);
    free(tamed);
    return 0;
}

/* Prints the reason for which a table has no whole copy. The reason may come from an aggregator. */
static int row_table_print_fault(const struct view_table *t, FILE *out)
{
    char name[TABLE_TERMS_NAME_BYTES_MAX + 1], fault[128];
    if (!t->copy || !*t->copy_fault)
        return 0;
    snprintf(name, sizeof name, "%s", t->table);
    snprintf(fault, sizeof fault, "%s", t->copy_fault);
    text_disarm(name);
    text_disarm(fault);
    fprintf(out, "%s: table %s has no whole copy: %s\n", t->copy, name, fault);
    return 0;
}

static int row_tables_print_notes(const struct view_tables *tables, FILE *out)
{
    int error = 0;
    for (size_t i = 0; error == 0 && i < tables->count; i++)
        error = row_table_print_failure(&tables->each[i], out)
                    ?: row_table_print_fault(&tables->each[i], out);
    if (tables->left_out > 0)
        fprintf(
            out,
            "%zu more tables are not shown, because one message has no room for them; `gradpool "
            "table list JOB` shows those of one job\n",
            tables->left_out);
    return error;
}

/* Titles of the columns of row_table_add(). */
#define ROW_TABLE_TITLES                                                                       \
    "TABLE", ">DIM", "RULE", "CONSISTENCY", ">SHARDS", ">ROWS", ">SIZE", ">BIRTHS", ">PULLED", \
        ">PUSHED", ">CLOCK", "BEHIND", "COPY", NULL

int row_tables_print(const struct view_tables *tables, FILE *out)
{
    static const char *const titles[] = {ROW_TABLE_TITLES};
    struct table text;
    table_init(&text, titles);
    for (size_t i = 0; i < tables->count; i++)
        row_table_add(&text, &tables->each[i]);
    int error = table_print(&text, out);
    return error ?: row_tables_print_notes(tables, out);
}

int ops_tables_table(const struct view_jobs *jobs, FILE *out)
{
    static const char *const titles[] = {"TENANT", "JOB", ROW_TABLE_TITLES};
    struct table text;
    table_init(&text, titles);
    for (size_t i = 0; i < jobs->jobs_count; i++) {
        const struct view_job *job = &jobs->jobs[i];
        for (size_t k = 0; job->tables && k < job->tables->count; k++) {
            table_add(&text, "%s", job->tenant && *job->tenant ? job->tenant : "-");
            table_add(&text, "%s", job->job);
            row_table_add(&text, &job->tables->each[k]);
        }
    }
    int error = table_print(&text, out);
    for (size_t i = 0; error == 0 && i < jobs->jobs_count; i++)
        if (jobs->jobs[i].tables)
            error = row_tables_print_notes(jobs->jobs[i].tables, out);
    return error;
}

static json_t *row_table_json(const struct view_table *t, int *error)
{
    json_t *o = json_object();
    JSON_PUT(o, t, error, table, dim, rule);
    json_put_text(o, "consistency", t->consistency, error);
    JSON_PUT(o, t, error, shards, failure);
    if (t->copy)
        JSON_PUT(o, t, error, copy);
    if (t->copy && *t->copy_fault)
        JSON_PUT(o, t, error, copy_fault);
    if (t->is_counted) {
        JSON_PUT(o, t, error, rows, bytes, births, pulled_keys, pushed_keys, minimum_clock,
                 largest_clock);
    }
    if (row_table_behind(t) > 0)
        json_put_number(o, "behind_rank", t->behind_rank, error);
    return o;
}

void row_tables_put(json_t *o, const struct view_tables *tables, int *error)
{
    json_t *list = json_array();
    for (size_t i = 0; i < tables->count; i++)
        json_put_last(list, row_table_json(&tables->each[i], error), error);
    json_put(o, "tables", list, error);
    if (tables->left_out > 0)
        json_put_number(o, "tables_left_out", tables->left_out, error);
}

static json_t *job_tables_json(const struct view_job *job, int *error)
{
    json_t *o = json_object();
    JSON_PUT(o, job, error, tenant, job);
    row_tables_put(o, job->tables, error);
    return o;
}

int ops_tables_json(const struct view_jobs *jobs, FILE *out)
{
    int error = 0;
    json_t *o = json_object(), *list = json_array();
    for (size_t i = 0; i < jobs->jobs_count; i++)
        if (jobs->jobs[i].tables)
            json_put_last(list, job_tables_json(&jobs->jobs[i], &error), &error);
    json_put(o, "jobs", list, &error);
    return json_put_out(o, error, out);
}
