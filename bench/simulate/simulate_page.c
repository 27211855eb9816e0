/* Writes a simulation as one page. Of the thousands of jobs the page shows only the jobs with the
 * largest losses. */
#include "bench/lib/run_file.h"
#include "bench/simulate/simulate_report.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define JOBS_SHOWN 50
#define EVENT_BYTES 128

struct page {
    struct view_event events[2 * TRAIL_SPANS];
    char texts[2 * TRAIL_SPANS][EVENT_BYTES];
    size_t events_count;
    struct run_facts facts;
    struct view_figure figures[20];
    size_t figures_count;
    struct view_moment moments[TRAIL_PARTS];
    double *losses;
    struct trail_job *worst; /* sorted by loss, the largest first */
    struct view_run_job jobs[JOBS_SHOWN];
    size_t jobs_count;
};

static void add_facts(const struct simulate_report *report, struct run_facts *facts)
{
    const struct setting *s = report->setting;
    const struct workload *w = report->workload;

    run_fact(facts, "jobs", "%s: %zu of two or more workers, in %.1f hours",
             report->traces ? report->traces : "drawn from the seed", w->count,
             (double)w->end_ns / (double)NS_PER_HOUR);
    run_fact(facts, "x", "%.3f GiB/s of pushed gradients a core, %s", s->x_gib_per_s,
             report->is_x_given ? "given" : "measured");
    run_fact(facts, "wire", "f%u, lines of %g Gbit/s to each worker, %g to each lane",
             s->element_bytes * 8, s->line_gbit_per_s, SETTING_LANE_LINES * s->line_gbit_per_s);
    run_fact(facts, "jitter", "%g", s->jitter);
    run_fact(facts, "policy", "%s; tasks %s", s->policy, s->moves ? "move" : "stay");
    run_fact(facts, "pieces", "%llu KiB", (unsigned long long)s->piece_bytes_max / 1024);
    run_fact(facts, "loss limit", "%g %%", s->loss_limit_ppm / 1e4);
    run_fact(facts, "windows", "%u of %g s", s->windows, s->window_s);
    run_fact(facts, "seed", "%llu", (unsigned long long)s->seed);
    run_facts_of_host(facts);
}

static void add_figure(struct page *page, const char *name, const char *title, double value,
                       bool is_ratio)
{
    page->figures[page->figures_count++] = (struct view_figure){name, title, value, is_ratio};
}

static void add_figures(const struct simulate_report *report, const struct simulated *r,
                        struct page *page)
{
    add_figure(page, "allocated_core_hours", "core hours allocated", r->allocated, false);
    add_figure(page, "fluid_core_hours", "core hours at the fluid bound", r->fluid, false);
    add_figure(page, "utilisation", "utilisation", r->allocated > 0 ? r->fluid / r->allocated : NAN,
               true);
    add_figure(page, "jobs_within_limit_fraction", "jobs within their limit", r->within_limit,
               true);
    add_figure(page, "saving_c1", "saved against 1 core a server", simulate_saving(r, 1), true);
    add_figure(page, "saving_c2", "saved against 2 cores a server", simulate_saving(r, 2), true);
    add_figure(page, "saving_c4", "saved against 4 cores a server", simulate_saving(r, 4), true);
    add_figure(page, "loss_mean", "loss, mean", r->loss_mean, true);
    add_figure(page, "loss_p99", "loss, 99th percentile", r->loss_p99, true);
    add_figure(page, "loss_model", "loss as predicted", r->loss_predicted, true);
    add_figure(page, "loss_counted", "loss by the rule of placement", r->loss_counted, true);
    add_figure(page, "predicted_near_fraction", "predicted within 2 points", r->predicted_near,
               true);
    add_figure(page, "windows", "windows simulated", r->windows, false);
    add_figure(page, "jobs_placed", "jobs placed", (double)r->placed, false);
    add_figure(page, "jobs_refused", "jobs refused", (double)r->refused, false);
    add_figure(page, "moves_per_hour", "moves an hour", simulate_moves_per_hour(r), false);
    add_figure(page, "x_gib_per_s", "GiB/s that a core sums", report->setting->x_gib_per_s, false);
}

static void add_moments(const struct workload *workload, const struct trail *trail,
                        struct page *page)
{
    double part_s = (double)workload->end_ns / 1e9 / TRAIL_PARTS;

    for (size_t i = 0; i < TRAIL_PARTS; i++) {
        const struct trail_part *part = &trail->parts[i];

        page->moments[i] = (struct view_moment){((double)i + 0.5) * part_s,
                                                {part->allocated, part->fluid, part->dedicated}};
    }
}

static void __attribute__((format(printf, 4, 5)))
add_event(struct page *page, double at_s, const char *kind, const char *format, ...)
{
    va_list arguments;
    size_t at = page->events_count++;

    va_start(arguments, format);
    vsnprintf(page->texts[at], EVENT_BYTES, format, arguments);
    va_end(arguments);
    page->events[at] = (struct view_event){at_s, kind, page->texts[at]};
}

/* Adds events for each part of the run, at the time of the part's end: numbers of lanes that opened
 * and closed, and of moves. */
static void add_events(const struct workload *workload, const struct trail *trail,
                       struct page *page)
{
    double span_s = (double)workload->end_ns / 1e9 / TRAIL_SPANS, hours = span_s / 3600;

    for (size_t i = 0; i < TRAIL_SPANS; i++) {
        const struct trail_span *span = &trail->spans[i];
        double at_s = (double)(i + 1) * span_s;

        if (span->opened + span->closed > 0)
            add_event(page, at_s, "growth",
                      "in the %.1f hours before, %llu shared lanes opened and %llu closed", hours,
                      (unsigned long long)span->opened, (unsigned long long)span->closed);
        if (span->moves > 0)
            add_event(page, at_s, "moves",
                      "in the %.1f hours before, %llu parts of jobs moved, so that lanes close",
                      hours, (unsigned long long)span->moves);
    }
}

static int compare_jobs(const void *a, const void *b)
{
    const struct trail_job *x = a, *y = b;

    if (x->loss != y->loss)
        return x->loss > y->loss ? -1 : 1;
    return (x->job > y->job) - (x->job < y->job);
}

static int add_jobs(const struct workload *workload, const struct trail *trail, struct page *page)
{
    size_t count = trail->jobs_count;

    page->losses = calloc(count + 1, sizeof(*page->losses));
    page->worst = calloc(count + 1, sizeof(*page->worst));
    if (!page->losses || !page->worst)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        page->losses[i] = trail->jobs[i].loss;
        page->worst[i] = trail->jobs[i];
    }
    qsort(page->worst, count, sizeof(*page->worst), compare_jobs);
    for (; page->jobs_count < count && page->jobs_count < JOBS_SHOWN; page->jobs_count++) {
        const struct trail_job *job = &page->worst[page->jobs_count];

        page->jobs[page->jobs_count] =
            (struct view_run_job){.job = workload->jobs[job->job].name,
                                  .workers = workload->jobs[job->job].workers,
                                  .alone_s = NAN,
                                  .dedicated_s = NAN,
                                  .shared_s = NAN,
                                  .loss = job->loss,
                                  .predicted_loss = job->predicted};
    }
    return 0;
}

static int write_page(const struct simulate_report *report, const struct simulated *result,
                      const struct trail *trail, const char *path, struct page *page)
{
    int error = add_jobs(report->workload, trail, page);

    if (error < 0)
        return error;
    add_facts(report, &page->facts);
    add_figures(report, result, page);
    add_moments(report->workload, trail, page);
    add_events(report->workload, trail, page);
    struct view_run run = {.title = "gradpool: a simulated cluster",
                           .facts = page->facts.facts,
                           .facts_count = page->facts.count,
                           .figures = page->figures,
                           .figures_count = page->figures_count,
                           .moments = page->moments,
                           .moments_count = TRAIL_PARTS,
                           .losses = page->losses,
                           .losses_count = trail->jobs_count,
                           .jobs = page->jobs,
                           .jobs_count = page->jobs_count,
                           .events = page->events,
                           .events_count = page->events_count};
    return run_write(&run, path);
}

int simulate_page(const struct simulate_report *report, const struct simulated *result,
                  const struct trail *trail, const char *path)
{
    struct page *page = calloc(1, sizeof(*page));
    int error = page ? write_page(report, result, trail, path, page) : -ENOMEM;

    if (page) {
        free(page->losses);
        free(page->worst);
    }
    free(page);
    return error;
}
