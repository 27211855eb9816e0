/* `gradpool top` as text: the present state of the service. Owns the columns. The caller decides
 * how often and how much of the text is shown. */
#include "svc/base/text.h"
#include "svc/ops/answer/answer.h"
#include "svc/ops/answer/table.h"
#include "svc/ops/snapshot/figures.h"

#include <inttypes.h>
#include <math.h>

static void add_figure(struct table *table, enum figure_unit unit, double value)
{
    char cell[FIGURE_BYTES];
    table_add(table, "%s", figure_text(unit, value, cell));
}

static void print_cores(const struct snapshot *s, FILE *out)
{
    char used[FIGURE_BYTES];
    const struct view_cores *c = &s->cores;
    fprintf(out, "cores: %.0f allocated, %s used; dedicated servers would hold %.0f", c->allocated,
            figure_text(FIGURE_CORES, c->used, used), c->dedicated);
    if (c->dedicated > 0)
        fprintf(out, ": %.0f saved (%.0f %%)", cores_saved(c),
                100 * (1 - c->allocated / c->dedicated));
    fputs("\n\n", out);
}

static void add_lane(struct table *table, const struct snapshot *s, const struct view_aggregator *a,
                     const struct view_lane *lane)
{
    char cell[SHARES_BYTES];
    table_add(table, "%u", lane->lane);
    table_add(table, "%s", a->node);
    table_add(table, "%u", lane->core);
    table_add(table, "%s", lane_state_text(a, lane));
    add_figure(table, FIGURE_RATIO, lane->rate.cores);
    add_figure(table, FIGURE_RATIO, lane->rate.handled);
    add_figure(table, FIGURE_RATIO, lane->rate.queued);
    add_figure(table, FIGURE_COUNT, lane->rate.rounds_per_s);
    add_figure(table, FIGURE_BYTES_PER_S, lane->rate.bytes_per_s);
    table_add(table, "%s", text_bytes(lane->arena_bytes, cell, sizeof cell));
    table_add(table, "%s", shares_text(s, lane, cell));
}

static int print_lanes(const struct snapshot *s, FILE *out)
{
    static const char *const titles[] = {">LANE", "NODE",      ">CORE",   "STATE",
                                         ">BUSY", ">HANDLING", ">QUEUED", ">ROUNDS/S",
                                         ">IN/S", ">MEMORY",   "SHARES",  NULL};
    struct table table;
    table_init(&table, titles);
    for (size_t i = 0; i < s->status.aggregators_count; i++) {
        const struct view_aggregator *a = &s->status.aggregators[i];
        for (size_t j = 0; j < a->lanes_count; j++)
            add_lane(&table, s, a, &a->lanes[j]);
    }
    return table_print(&table, out);
}

static void add_job(struct table *table, const struct figure *const *shown,
                    const struct view_job *job)
{
    char label[JOB_LABEL_BYTES];
    table_add(table, "%s", job_label(job, label));
    table_add(table, "%s", job->state);
    for (; *shown; shown++)
        add_figure(table, (*shown)->unit, (*shown)->value(job));
}

/* Each title begins with '>', because all columns are numbers. */
static int print_jobs(const struct snapshot *s, FILE *out)
{
    char marked[TABLE_COLUMNS_MAX][32];
    const struct figure *shown[TABLE_COLUMNS_MAX] = {0};
    const char *titles[TABLE_COLUMNS_MAX + 1] = {"JOB", "STATE"};
    size_t count = 0;
    for (const struct figure *f = job_figures; f->name && count + 3 < TABLE_COLUMNS_MAX; f++) {
        if (!figure_is_known(f, &s->jobs))
            continue;
        snprintf(marked[count], sizeof marked[count], ">%s", f->title);
        titles[2 + count] = marked[count];
        shown[count++] = f;
    }
    struct table table;
    table_init(&table, titles);
    for (size_t i = 0; i < s->jobs.jobs_count; i++)
        add_job(&table, shown, &s->jobs.jobs[i]);
    return table_print(&table, out);
}

int ops_top_text(const struct snapshot *s, FILE *out)
{
    uint64_t up_s = s->status.uptime_ns / UINT64_C(1000000000);
    fprintf(out, "%s  up %" PRIu64 ":%02u:%02u, policy %s, %u job%s, %u task%s\n",
            s->status.endpoint, up_s / 3600, (unsigned)(up_s / 60 % 60), (unsigned)(up_s % 60),
            s->status.policy, s->status.jobs, text_plural(s->status.jobs), s->status.tasks,
            text_plural(s->status.tasks));
    print_cores(s, out);
    int error = print_lanes(s, out);
    if (error < 0 || s->jobs.jobs_count == 0)
        return error;
    fputc('\n', out);
    return print_jobs(s, out);
}
