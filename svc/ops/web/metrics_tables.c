/* Metrics of tables of keyed rows. Each metric has one series for each table of each job. */
#include "svc/ops/web/metrics_tables.h"

#include "svc/ops/snapshot/row_tables.h"
#include "svc/ops/web/metrics.h"
#include "svc/ops/web/metrics_line.h"

#include <math.h>
#include <string.h>

static double table_rows(const struct view_table *t) { return (double)t->rows; }
static double table_bytes(const struct view_table *t) { return (double)t->bytes; }
static double table_births(const struct view_table *t) { return (double)t->births; }
static double table_pulled(const struct view_table *t) { return (double)t->pulled_keys; }
static double table_pushed(const struct view_table *t) { return (double)t->pushed_keys; }
static double table_minimum(const struct view_table *t) { return (double)t->minimum_clock; }
static double table_largest(const struct view_table *t) { return (double)t->largest_clock; }
static double table_has_copy(const struct view_table *t)
{
    return t->copy ? strcmp(t->copy, "whole") == 0 : NAN;
}
static double table_behind(const struct view_table *t)
{
    return row_table_behind(t) > 0 ? t->behind_rank : NAN;
}

static const struct table_metric {
    const char *name, *type, *help;
    double (*value)(const struct view_table *table);
    bool is_uncounted; /* the value is known even if the lanes have sent no counts */
} table_metrics[] = {
    {"table_rows", "gauge", "Rows of a table.", table_rows, false},
    {"table_bytes", "gauge", "Memory of lanes for rows and index of a table.", table_bytes, false},
    {"table_births_total", "counter", "Rows that pushes have created.", table_births, false},
    {"table_pulled_keys_total", "counter", "Rows that pulls have returned.", table_pulled, false},
    {"table_pushed_keys_total", "counter", "Gradients of rows from pushes.", table_pushed, false},
    {"table_minimum_clock", "gauge", "Smallest clock of the ranks.", table_minimum, false},
    {"table_largest_clock", "gauge", "Largest clock of the ranks.", table_largest, false},
    {"table_behind_rank", "gauge", "Lowest rank at the smallest clock, if another rank is ahead.",
     table_behind, false},
    {"table_copy_is_whole", "gauge",
     "1: the rows survive the loss of one aggregator; 0: copying, promoting, or no copy.",
     table_has_copy, true},
};

static void table_print_series(const struct table_metric *m, const struct view_job *job,
                               const struct view_table *table, FILE *out)
{
    double value = table->is_counted || m->is_uncounted ? m->value(table) : NAN;
    if (isnan(value))
        return;
    fprintf(out, "gradpool_%s{", m->name);
    metrics_job_labels(out, job);
    fputc(',', out);
    metrics_label(out, "table", table->table);
    fprintf(out, "} %.15g\n", value);
}

/* Prints a metric for tables, up to the limit. Returns the number of all tables. */
static size_t tables_print_metric(const struct snapshot *s, const struct table_metric *m, FILE *out)
{
    size_t count = 0;
    metrics_family(out, m->name, m->type, m->help);
    for (size_t i = 0; i < s->jobs.jobs_count; i++) {
        const struct view_job *job = &s->jobs.jobs[i];
        for (size_t t = 0; job->tables && t < job->tables->count; t++)
            if (count++ < METRICS_TABLES_MAX && i < METRICS_JOBS_MAX)
                table_print_series(m, job, &job->tables->each[t], out);
        count += job->tables ? job->tables->left_out : 0;
    }
    return count;
}

size_t metrics_print_tables(const struct snapshot *s, FILE *out)
{
    size_t count = 0;
    for (size_t i = 0; i < sizeof table_metrics / sizeof *table_metrics; i++)
        count = tables_print_metric(s, &table_metrics[i], out);
    return count;
}
