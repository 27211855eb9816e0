/* Report about a benchmark's run, as JSON and as a page. Every value of the page is also in the
 * JSON (O10). */
#include "svc/ops/report/run_report.h"

#include "svc/ops/json/json_put.h"
#include "svc/ops/json/json_views.h"
#include "svc/ops/report/page.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* --- JSON --- */

static json_t *figures_json(const struct view_run *run, int *error)
{
    json_t *o = json_object();
    for (size_t i = 0; i < run->figures_count; i++)
        json_put_known(o, run->figures[i].name, run->figures[i].value, error);
    return o;
}

static json_t *losses_json(const struct view_run *run, int *error)
{
    size_t jobs[PAGE_LOSS_BINS];
    json_t *bins = json_array();
    page_count_losses(run->losses, run->losses_count, jobs);
    for (size_t bin = 0; bin < PAGE_LOSS_BINS; bin++) {
        json_t *o = json_object();
        json_put_known(o, "from", bin > 0 ? page_loss_ends[bin - 1] : NAN, error);
        json_put_known(o, "below", bin + 1 < PAGE_LOSS_BINS ? page_loss_ends[bin] : NAN, error);
        json_put_number(o, "jobs", jobs[bin], error);
        json_put_last(bins, o, error);
    }
    return bins;
}

static json_t *job_json(const struct view_run_job *job, int *error)
{
    json_t *o = json_object();
    JSON_PUT(o, job, error, job, workers);
    JSON_PUT_KNOWN(o, job, error, alone_s, dedicated_s, shared_s, loss, predicted_loss);
    return o;
}

int run_report_json(const struct view_run *run, FILE *out)
{
    int error = 0;
    json_t *o = json_object(), *moments = json_array(), *jobs = json_array();
    for (size_t i = 0; i < run->moments_count; i++)
        json_put_last(moments, json_of_moment(&run->moments[i], &error), &error);
    for (size_t i = 0; i < run->jobs_count; i++)
        json_put_last(jobs, job_json(&run->jobs[i], &error), &error);
    json_put_text(o, "title", run->title, &error);
    json_put(o, "facts", json_of_facts(run->facts, run->facts_count, &error), &error);
    json_put(o, "figures", figures_json(run, &error), &error);
    json_put(o, "history", moments, &error);
    json_put(o, "losses", losses_json(run, &error), &error);
    json_put(o, "jobs", jobs, &error);
    json_put(o, "events", json_of_events(run->events, run->events_count, &error), &error);
    return json_put_out(o, error, out);
}

/* --- the page --- */

static void print_figures(const struct view_run *run, FILE *out)
{
    fputs("<dl>", out);
    for (size_t i = 0; i < run->figures_count; i++) {
        const struct view_figure *f = &run->figures[i];
        fprintf(out, "<div><dt>%s</dt><dd id=\"%s\">", f->title, f->name);
        if (!isfinite(f->value))
            fputs("-", out);
        else if (f->is_ratio)
            fprintf(out, "%.2f %%", 100 * f->value);
        else
            fprintf(out, "%.6g", f->value);
        fputs("</dd></div>", out);
    }
    fputs("</dl>\n", out);
}

static double alone(const struct view_run_job *job) { return job->alone_s; }
static double dedicated(const struct view_run_job *job) { return job->dedicated_s; }
static double shared(const struct view_run_job *job) { return job->shared_s; }
static double lost(const struct view_run_job *job) { return job->loss; }
static double predicted(const struct view_run_job *job) { return job->predicted_loss; }

static const struct column {
    const char *title;
    enum figure_unit unit;
    double (*value)(const struct view_run_job *job);
} columns[] = {
    {"alone", FIGURE_SECONDS, alone},       {"dedicated", FIGURE_SECONDS, dedicated},
    {"shared", FIGURE_SECONDS, shared},     {"lost", FIGURE_RATIO, lost},
    {"predicted", FIGURE_RATIO, predicted}, {0},
};

/* Returns whether any job has this value. A column without values is left out. */
static bool is_known(const struct view_run *run, const struct column *column)
{
    for (size_t i = 0; i < run->jobs_count; i++)
        if (isfinite(column->value(&run->jobs[i])))
            return true;
    return false;
}

static void print_job(const struct view_run *run, const struct view_run_job *job, FILE *out)
{
    fputs("<tr>", out);
    page_name(job->job, out);
    page_number(job->workers, out);
    for (const struct column *c = columns; c->title; c++)
        if (is_known(run, c))
            page_figure(c->unit, c->value(job), out);
    fputs("</tr>\n", out);
}

static void print_jobs(const struct view_run *run, FILE *out)
{
    fputs("<h2>Jobs</h2>\n", out);
    if (run->jobs_count < run->losses_count)
        fprintf(out, "<p class=\"quiet\">The %zu of %zu that lose most.</p>\n", run->jobs_count,
                run->losses_count);
    fputs("<div class=\"wide\"><table id=\"jobs\"><thead><tr><th class=\"name\">job</th>"
          "<th>workers</th>",
          out);
    for (const struct column *c = columns; c->title; c++)
        if (is_known(run, c))
            fprintf(out, "<th>%s</th>", c->title);
    fputs("</tr></thead><tbody>\n", out);
    for (size_t i = 0; i < run->jobs_count; i++)
        print_job(run, &run->jobs[i], out);
    fputs("</tbody></table></div>\n", out);
}

static int print_data(const struct view_run *run, FILE *out)
{
    char *text = NULL;
    size_t bytes;
    FILE *json = open_memstream(&text, &bytes);
    if (!json)
        return -ENOMEM;
    int error = run_report_json(run, json);
    if (fclose(json) != 0)
        error = -ENOMEM;
    if (error == 0)
        page_data(text, out);
    free(text);
    return error;
}

int run_report_page(const struct view_run *run, FILE *out)
{
    page_begin(run->title, out);
    fputs("<h1>", out);
    page_text(run->title, out);
    fputs("</h1>\n", out);
    print_figures(run, out);
    page_cores_over_time(run->moments, run->moments_count, out);
    page_losses(run->losses, run->losses_count, out);
    print_jobs(run, out);
    page_events(run->events, run->events_count, out);
    page_facts("Settings", run->facts, run->facts_count, out);
    int error = print_data(run, out);
    page_end(out);
    return error < 0 ? error : ferror(out) ? -EIO : 0;
}
