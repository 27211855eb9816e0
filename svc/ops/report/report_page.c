/* The report as one HTML page: text, tables and one chart. The page has no script and loads
 * nothing. Each name is written with page_text(), because users choose names. */
#include "svc/base/text.h"
#include "svc/ops/report/page.h"
#include "svc/ops/report/report.h"
#include "svc/ops/snapshot/figures.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static void print_cores(const struct view_cores *c, FILE *out)
{
    double saved = cores_saved(c);
    fputs("<dl>", out);
    page_tile("allocated", FIGURE_COUNT, c->allocated, out);
    page_tile("used", FIGURE_CORES, c->used, out);
    page_tile("dedicated", FIGURE_COUNT, c->dedicated, out);
    page_tile("saved", FIGURE_COUNT, saved, out);
    if (c->dedicated > 0)
        page_tile("saving", FIGURE_RATIO, saved / c->dedicated, out);
    fputs("</dl>\n"
          "<p class=\"quiet\">Cores now. Dedicated: cores of dedicated servers for the same jobs, "
          "one for each worker; a job of one worker needs none.</p>\n",
          out);
}

/* Prints the mean use of cores since the start. The present use alone could mislead, because the
 * service may be idle now. */
static void print_mean(const struct view_cores *c, FILE *out)
{
    char used[FIGURE_BYTES];
    fprintf(out,
            "<p id=\"mean\">Mean since the start of the service: %.2f cores allocated, %s used; "
            "dedicated servers would have used %.2f",
            c->allocated, figure_text(FIGURE_CORES, c->used, used), c->dedicated);
    if (c->dedicated > 0)
        fprintf(out, ": %.0f %% saved", 100 * (1 - c->allocated / c->dedicated));
    fputs(".</p>\n", out);
}

static void print_lane(const struct snapshot *s, const struct view_aggregator *a,
                       const struct view_lane *lane, FILE *out)
{
    char text[SHARES_BYTES];
    fputs("<tr>", out);
    page_number(lane->lane, out);
    page_cell(a->node, true, out);
    page_number(lane->core, out);
    page_cell(lane_state_text(a, lane), true, out);
    page_figure(FIGURE_RATIO, lane->rate.cores, out);
    page_figure(FIGURE_COUNT, lane->rate.rounds_per_s, out);
    page_figure(FIGURE_BYTES_PER_S, lane->rate.bytes_per_s, out);
    page_cell(text_bytes(lane->arena_bytes, text, sizeof text), false, out);
    page_number(lane->tasks, out);
    page_cell(shares_text(s, lane, text), true, out);
    fputs("</tr>\n", out);
}

static void print_lanes(const struct snapshot *s, FILE *out)
{
    fputs("<h2>Lanes</h2>\n<div class=\"wide\"><table id=\"lanes\"><thead><tr><th>lane</th>"
          "<th class=\"name\">node</th><th>core</th><th class=\"name\">state</th><th>busy</th>"
          "<th>rounds/s</th><th>in/s</th><th>memory</th><th>tasks</th>"
          "<th class=\"name\">shares of jobs</th></tr></thead><tbody>\n",
          out);
    for (size_t i = 0; i < s->status.aggregators_count; i++) {
        const struct view_aggregator *a = &s->status.aggregators[i];
        for (size_t j = 0; j < a->lanes_count; j++)
            print_lane(s, a, &a->lanes[j], out);
    }
    fputs("</tbody></table></div>\n", out);
}

static void print_job(const struct snapshot *s, const struct view_job *job, FILE *out)
{
    char label[JOB_LABEL_BYTES];
    fputs("<tr>", out);
    page_name(job_label(job, label), out);
    page_cell(job->state, true, out);
    for (const struct figure *f = job_figures; f->name; f++)
        if (figure_is_known(f, &s->jobs))
            page_figure(f->unit, f->value(job), out);
    fputs("</tr>\n", out);
}

static void print_title(const struct figure *f, FILE *out)
{
    fputs("<th title=\"", out);
    page_text(f->help, out);
    fputs("\">", out);
    for (const char *c = f->title; *c; c++)
        fputc(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c, out);
    fputs("</th>", out);
}

static void print_jobs(const struct snapshot *s, FILE *out)
{
    fputs("<h2>Jobs</h2>\n", out);
    if (s->jobs.jobs_count == 0) {
        fputs("<p class=\"quiet\">None.</p>\n", out);
        return;
    }
    fputs("<div class=\"wide\"><table id=\"jobs\"><thead><tr><th class=\"name\">job</th>"
          "<th class=\"name\">state</th>",
          out);
    for (const struct figure *f = job_figures; f->name; f++) {
        if (figure_is_known(f, &s->jobs))
            print_title(f, out);
    }
    fputs("</tr></thead><tbody>\n", out);
    for (size_t i = 0; i < s->jobs.jobs_count; i++)
        print_job(s, &s->jobs.jobs[i], out);
    fputs("</tbody></table></div>\n", out);
}

static void print_ended_job(const struct ended *ended, const struct ended_job *job, double now_s,
                            FILE *out)
{
    char text[JOB_LABEL_BYTES];
    fputs("<tr>", out);
    page_name(job_label(&job->view, text), out);
    page_cell(job->state, true, out);
    snprintf(text, sizeof text, "%.0f min ago", (now_s - job->at_s) / 60);
    page_cell(text, false, out);
    page_number(job->view.use.rounds, out);
    page_cell(text_bytes(job->view.use.pushed_bytes, text, sizeof text), false, out);
    for (const struct figure *f = job_figures; f->name; f++)
        if (ended_knows(ended, f, now_s))
            page_figure(f->unit, f->value(&job->view), out);
    fputs("</tr>\n", out);
}

static void print_ended(const struct ended *ended, double now_s, FILE *out)
{
    const struct ended_job *job;
    if (!ended_at(ended, 0, now_s))
        return;
    fputs("<h2>Jobs that have ended</h2>\n"
          "<div class=\"wide\"><table id=\"ended\"><thead><tr><th class=\"name\">job</th><th "
          "class=\"name\">last state</th><th>ended</th><th>rounds</th><th>bytes read</th>",
          out);
    for (const struct figure *f = job_figures; f->name; f++)
        if (ended_knows(ended, f, now_s))
            print_title(f, out);
    fputs("</tr></thead><tbody>\n", out);
    for (size_t i = 0; (job = ended_at(ended, i, now_s)); i++)
        print_ended_job(ended, job, now_s, out);
    fputs("</tbody></table></div>\n", out);
}

/* Collects the known losses of running and ended jobs. */
static size_t list_losses(const struct snapshot *s, const struct ended *ended, double now_s,
                          double *ret_losses)
{
    size_t count = 0;
    const struct ended_job *job;
    for (size_t i = 0; i < s->jobs.jobs_count; i++)
        if (isfinite(job_shared_loss(&s->jobs.jobs[i])))
            ret_losses[count++] = job_shared_loss(&s->jobs.jobs[i]);
    for (size_t i = 0; (job = ended_at(ended, i, now_s)); i++)
        if (isfinite(job_shared_loss(&job->view)))
            ret_losses[count++] = job_shared_loss(&job->view);
    return count;
}

static void print_losses(const struct snapshot *s, const struct ended *ended, double now_s,
                         FILE *out)
{
    double *losses = calloc(s->jobs.jobs_count + ENDED_JOBS_MAX, sizeof *losses);
    if (!losses)
        return;
    size_t count = list_losses(s, ended, now_s, losses);
    page_losses(losses, count, out);
    if (count > 0)
        fputs("<p class=\"quiet\">Losses of jobs by sharing lanes. The tables of jobs also show "
              "losses with other causes (own). Ended jobs count while they are listed.</p>\n",
              out);
    free(losses);
}

static int print_data(const struct snapshot *s, const struct history *history, FILE *out)
{
    char *text = NULL;
    size_t bytes;
    FILE *json = open_memstream(&text, &bytes);
    if (!json)
        return -ENOMEM;
    int error = report_json(s, history, json);
    if (fclose(json) != 0)
        error = -ENOMEM;
    if (error == 0)
        page_data(text, out);
    free(text);
    return error;
}

int report_page(const struct snapshot *s, const struct history *history, FILE *out)
{
    struct view_cores mean;
    uint64_t up_s = s->status.uptime_ns / UINT64_C(1000000000);
    double now_s = (double)s->status.uptime_ns / 1e9;
    page_begin("gradpool report", out);
    fputs("<h1>gradpool</h1>\n<p class=\"quiet\">", out);
    page_text(s->status.endpoint, out);
    fprintf(out, " · up %" PRIu64 ":%02u:%02u · policy ", up_s / 3600, (unsigned)(up_s / 60 % 60),
            (unsigned)(up_s % 60));
    page_text(s->status.policy, out);
    fputs("</p>\n", out);
    print_cores(&s->cores, out);
    if (history_mean(history, &mean))
        print_mean(&mean, out);
    page_cores_over_time(history->samples, history->count, out);
    print_lanes(s, out);
    print_jobs(s, out);
    print_ended(&history->ended, now_s, out);
    print_losses(s, &history->ended, now_s, out);
    page_events(s->status.events, s->status.events_count, out);
    if (s->status.settings_count > 0)
        page_facts("Settings, machine, commit", s->status.settings, s->status.settings_count, out);
    int error = print_data(s, history, out);
    page_end(out);
    return error < 0 ? error : ferror(out) ? -EIO : 0;
}
