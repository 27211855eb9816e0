/* Views as tables for users. */
#include "svc/base/text.h"
#include "svc/ops/answer/answer.h"
#include "svc/ops/answer/counts.h"
#include "svc/ops/answer/pools.h"
#include "svc/ops/answer/row_tables.h"
#include "svc/ops/answer/stage.h"
#include "svc/ops/answer/table.h"
#include "svc/ops/snapshot/figures.h"
#include "svc/wire/limit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CELL_BYTES 64

/* Writes a time such as "3.2 ms", "4.1 s" or "2h03m". */
static const char *duration(uint64_t ns, char *buffer)
{
    uint64_t s = ns / UINT64_C(1000000000);
    if (s >= 3600)
        snprintf(buffer, CELL_BYTES, "%" PRIu64 "h%02um", s / 3600, (unsigned)(s / 60 % 60));
    else if (s >= 60)
        snprintf(buffer, CELL_BYTES, "%um%02us", (unsigned)(s / 60), (unsigned)(s % 60));
    else if (s >= 1)
        snprintf(buffer, CELL_BYTES, "%.1f s", (double)ns / 1e9);
    else
        snprintf(buffer, CELL_BYTES, "%.1f ms", (double)ns / 1e6);
    return buffer;
}

static void add_duration(struct table *table, uint64_t ns)
{
    char cell[CELL_BYTES];
    table_add(table, "%s", duration(ns, cell));
}

static void add_aggregator(struct table *table, const struct view_aggregator *a,
                           const struct view_lane *lane)
{
    table_add(table, "%u", a->aggregator);
    table_add(table, "%s", a->node);
    table_add_known(table, a->pid, "%u", a->pid);
    char cell[CELL_BYTES];
    if (a->silent_ns)
        table_add(table, "%s %s", lane_state_text(a, lane), duration(a->silent_ns, cell));
    else
        table_add(table, "%s", lane_state_text(a, lane));
}

static void add_lane(struct table *table, const struct view_lane *lane)
{
    table_add(table, "%u", lane->lane);
    table_add(table, "%u", lane->core);
    table_add(table, "%u", lane->jobs);
    table_add(table, "%u", lane->tasks);
    table_add(table, "%" PRIu64, lane->use.rounds);
    table_add_bytes(table, lane->use.pushed_bytes);
    add_duration(table, lane->cpu_ns);
    table_add_bytes(table, lane->arena_bytes);
}

static void print_service(const struct view_status *status, FILE *out)
{
    char up[CELL_BYTES];
    fprintf(out, "%s  ", status->endpoint);
    if (status->own_only)
        fprintf(out, "up %s, start number %" PRIu64 "\nof this tenant (operators see all): ",
                duration(status->uptime_ns, up), status->incarnation);
    else
        fprintf(out, "pid %u, up %s, policy %s\nstate in %s, start number %" PRIu64 ", ",
                status->pid, duration(status->uptime_ns, up), status->policy, status->state_dir,
                status->incarnation);
    fprintf(out, "%u job%s, %u task%s\n\n", status->jobs, text_plural(status->jobs), status->tasks,
            text_plural(status->tasks));
}

int ops_status_table(const struct view_status *status, FILE *out)
{
    static const char *const titles[] = {">AGGREGATOR", "NODE",    ">PID",   "STATE",   ">LANE",
                                         ">CORE",       ">JOBS",   ">TASKS", ">ROUNDS", ">TAKEN IN",
                                         ">CPU",        ">MEMORY", NULL};
    struct table table;
    print_service(status, out);
    table_init(&table, titles);
    for (size_t a = 0; a < status->aggregators_count; a++) {
        for (size_t i = 0; i < status->aggregators[a].lanes_count; i++) {
            add_aggregator(&table, &status->aggregators[a], &status->aggregators[a].lanes[i]);
            add_lane(&table, &status->aggregators[a].lanes[i]);
        }
    }
    return table_print(&table, out);
}

static void add_lanes(struct table *table, const struct view_job *job)
{
    char cell[CELL_BYTES] = "";
    for (size_t i = 0; i < job->lanes_count; i++)
        text_append(cell, sizeof cell, "%s%u", i ? "," : "", job->lanes[i]);
    table_add(table, "%s", cell);
}

/* The optional columns. A column is shown if at least one job has a value for it. */
struct job_columns {
    bool has_tables, has_counts;
};

static struct job_columns columns_of(const struct view_jobs *jobs)
{
    struct job_columns columns = {0};
    for (size_t i = 0; i < jobs->jobs_count; i++) {
        columns.has_tables |= jobs->jobs[i].tables != NULL;
        columns.has_counts |= jobs->jobs[i].counts != NULL;
    }
    return columns;
}

static void add_job(struct table *table, const struct view_job *job, struct job_columns columns)
{
    table_add(table, "%s", job->tenant && *job->tenant ? job->tenant : "-");
    table_add(table, "%s", job->job);
    table_add(table, "%s", job->state);
    table_add(table, "%u", job->workers);
    table_add(table, "%u", job->tensors);
    table_add_bytes(table, job->tensor_bytes);
    table_add(table, "%u", job->tasks);
    table_add(table, "%u", job->epoch);
    table_add(table, "%" PRIu64, job->use.rounds);
    table_add_bytes(table, job->use.pushed_bytes);
    add_duration(table, job->use.busy_ns);
    table_add_bytes(table, job->use.heap_bytes);
    table_add_bytes(table, job->use.registered_bytes);
    if (columns.has_tables)
        table_add(table, "%zu", job->tables ? job->tables->count + job->tables->left_out : 0);
    if (columns.has_counts)
        counts_add_job(table, job->counts);
    add_lanes(table, job);
}

int ops_jobs_table(const struct view_jobs *jobs, FILE *out)
{
    const char *titles[TABLE_COLUMNS_MAX + 1] = {
        "TENANT", "JOB",     "STATE",     ">WORKERS", ">TENSORS", ">SIZE", ">TASKS",
        ">EPOCH", ">ROUNDS", ">TAKEN IN", ">CPU",     ">MEMORY",  ">LENT"};
    const struct job_columns columns = columns_of(jobs);
    struct table table;
    size_t count = 13;
    if (columns.has_tables)
        titles[count++] = ">TABLES";
    if (columns.has_counts) {
        titles[count++] = ">K";
        titles[count++] = ">DROPPED";
    }
    titles[count] = "LANES";
    table_init(&table, titles);
    for (size_t i = 0; i < jobs->jobs_count; i++)
        add_job(&table, &jobs->jobs[i], columns);
    int error = table_print(&table, out);
    if (error < 0 || !jobs->pools)
        return error;
    fputc('\n', out);
    return pools_print(jobs->pools, out);
}

/* Prints a text without control bytes. The text may contain a tensor's name. */
static void print_text(const char *title, const char *text, FILE *out)
{
    char *tamed = text && *text ? strdup(text) : NULL;
    if (!tamed)
        return;
    text_disarm(tamed);
    fprintf(out, "%s: %s\n", title, tamed);
    free(tamed);
}

int ops_job_table(const struct view_job *job, FILE *out)
{
    static const char *const plain[] = {">RANK", "NODE", ">PID", "STATE", NULL};
    static const char *const counted[] = {">RANK",    "NODE",   ">PID",      "STATE", ">COUNTED",
                                          ">DROPPED", ">SHARE", ">GRADIENT", NULL};
    struct table table;
    int error = ops_jobs_table(&(struct view_jobs){(struct view_job *)job, 1, NULL}, out);
    if (error < 0)
        return error;
    print_text("failed", job->failure, out);
    print_text("waits", job->waits_for, out);
    if (job->counts)
        counts_print(job->counts, out);
    if (job->stage && (error = stage_print(job->stage, out)) < 0)
        return error;
    fputc('\n', out);
    table_init(&table, job->counts ? counted : plain);
    for (size_t i = 0; job->ranks && job->ranks[i].node; i++) {
        table_add(&table, "%u", job->ranks[i].rank);
        table_add(&table, "%s", job->ranks[i].node);
        table_add(&table, "%u", job->ranks[i].pid);
        table_add(&table, "%s", job->ranks[i].state);
        if (job->counts)
            counts_add_rank(&table, job->counts, job->ranks[i].rank);
    }
    error = table_print(&table, out);
    if (error < 0 || !job->tables)
        return error;
    fputc('\n', out);
    return row_tables_print(job->tables, out);
}

static void add_date(struct table *table, uint64_t since_1970_s)
{
    char cell[CELL_BYTES] = "?";
    time_t time = (time_t)since_1970_s;
    struct tm utc;
    if (gmtime_r(&time, &utc))
        strftime(cell, sizeof cell, "%Y-%m-%d %H:%M UTC", &utc);
    table_add(table, "%s", cell);
}

static void append_limit(const struct view_limit *limit, char *text, size_t room)
{
    char most[CELL_BYTES];
    enum limit known = limit_find(limit->name);
    if (known < LIMITS && limit_about(known)->is_bytes)
        text_bytes(limit->most, most, sizeof most);
    else
        snprintf(most, sizeof most, "%" PRIu64, limit->most);
    text_append(text, room, "%s%s-max %s", *text ? ", " : "", limit->name, most);
}

static void add_own_limits(struct table *table, const struct view_tenant *tenant)
{
    char text[512] = "";
    for (size_t i = 0; i < tenant->limits_count; i++)
        if (tenant->limits[i].is_own)
            append_limit(&tenant->limits[i], text, sizeof text);
    table_add(table, "%s", *text ? text : "-");
}

int ops_tenants_table(const struct view_tenants *tenants, FILE *out)
{
    static const char *const titles[] = {"TENANT",
                                         "ROLE",
                                         "STATE",
                                         "ADDED",
                                         ">LOSS LIMIT",
                                         ">JOBS",
                                         ">CONNECTIONS",
                                         ">COORDINATOR CPU",
                                         "QUOTAS OF ITS OWN",
                                         NULL};
    struct table table;
    table_init(&table, titles);
    for (size_t i = 0; i < tenants->tenants_count; i++) {
        const struct view_tenant *tenant = &tenants->tenants[i];
        table_add(&table, "%s", tenant->tenant);
        table_add(&table, "%s", tenant->role);
        table_add(&table, "%s", tenant->state);
        add_date(&table, tenant->added_s);
        table_add_known(&table, tenant->loss_limit_ppm, "%.4g %%", tenant->loss_limit_ppm / 1e4);
        table_add(&table, "%u", tenant->jobs);
        table_add(&table, "%u", tenant->connections);
        table_add(&table, "%.1f s", (double)tenant->cpu_ns / 1e9);
        add_own_limits(&table, tenant);
    }
    return table_print(&table, out);
}
