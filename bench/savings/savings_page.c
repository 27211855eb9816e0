/* Writes a run of `savings` as one page. Every figure must also be in the lines of the run. */
#include "bench/lib/run_file.h"
#include "bench/savings/savings_report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct page {
    struct run_facts facts;
    struct view_figure figures[16];
    size_t figures_count;
    struct view_moment moments[SAVINGS_PARTS];
    size_t moments_count;
    struct view_run_job jobs[PLAN_JOBS_MAX];
    struct view_event events[LOOK_EVENTS_MAX];
};

static void add_facts(const struct savings *s, struct run_facts *facts)
{
    const struct plan *p = &s->plan;
    run_fact(facts, "jobs", "%zu of %u workers", p->jobs_count, p->workers);
    run_fact(facts, "models", "%s", p->mix);
    run_fact(facts, "policy", "%s", s->policy);
    run_fact(facts, "transport", "%s", s->transport ? s->transport : "as a client chooses");
    run_fact(facts, "scale", "tensors x %.4f, step times x %.2f", p->bytes_scale, p->time_scale);
    run_fact(facts, "jitter", "%.3f", p->jitter);
    run_fact(facts, "load", "%.2f cores of lane time asked for; %.3f ns a KiB", s->load,
             s->lane_ns_a_byte * 1024);
    run_fact(facts, "lanes", "%u on %u cores", s->cores * s->lanes_per_core, s->cores);
    run_fact(facts, "turns", "%.1f s each, %u alternations", p->turn_ns / 1e9, s->alternations);
    run_fact(facts, "moves and growth",
             "the newest events of the shared service, in seconds since its start");
    run_fact(facts, "seed", "%llu", (unsigned long long)p->seed);
    run_facts_of_host(facts);
}

static void add_figure(struct page *page, const char *name, const char *title, double value,
                       bool is_ratio)
{
    page->figures[page->figures_count++] = (struct view_figure){name, title, value, is_ratio};
}

static void add_figures(const struct savings *s, const struct savings_sums *sums, struct page *page)
{
    const struct savings_series *shared = &s->series[SAVINGS_SHARED];
    const struct savings_series *dedicated = &s->series[SAVINGS_DEDICATED];
    add_figure(page, "cores_saved_fraction", "saved against 1 core a server", sums->saved[0], true);
    add_figure(page, "cores_saved_fraction_c2", "saved against 2 cores a server", sums->saved[1],
               true);
    add_figure(page, "cores_saved_fraction_c4", "saved against 4 cores a server", sums->saved[2],
               true);
    add_figure(page, "loss_mean", "loss, mean", sums->loss_mean, true);
    add_figure(page, "loss_p95", "loss, 95th percentile", sums->loss_p95, true);
    add_figure(page, "loss_worst", "loss, worst job", sums->loss_worst, true);
    add_figure(page, "loss_worst_alone", "loss, worst job, against alone", sums->loss_worst_alone,
               true);
    add_figure(page, "offered_cores", "lane time offered, cores", sums->offered, false);
    add_figure(page, "lane_busy_max", "busiest lane", sums->busiest, true);
    add_figure(page, "dedicated_utilisation", "utilisation, dedicated",
               dedicated->used_s / dedicated->allocated_s, true);
    add_figure(page, "shared_utilisation", "utilisation, shared",
               shared->used_s / shared->allocated_s, true);
    add_figure(page, "predicted_near_fraction", "predicted within 2 points", sums->predicted_near,
               true);
    add_figure(page, "checked_rounds", "rounds checked", (double)s->checked_rounds, false);
    add_figure(page, "wrong", "elements wrong", (double)s->wrong, false);
}

/* Adds means over the turns, up to the last part with an allocated lane. */
static void add_moments(const struct savings *s, struct page *page)
{
    const struct savings_series *shared = &s->series[SAVINGS_SHARED];
    const struct savings_series *dedicated = &s->series[SAVINGS_DEDICATED];
    double part_s = s->plan.turn_ns / 1e9 / SAVINGS_PARTS_PLANNED;
    for (size_t i = 0; i < SAVINGS_PARTS; i++) {
        struct view_cores cores = {.allocated = shared->parts[i].allocated / (double)shared->turns,
                                   .used = shared->parts[i].used / shared->parts[i].used_turns,
                                   .dedicated =
                                       dedicated->parts[i].allocated / (double)dedicated->turns};
        page->moments[i] = (struct view_moment){((double)i + 0.5) * part_s, cores};
        if (cores.allocated > 0 || cores.dedicated > 0)
            page->moments_count = i + 1;
    }
}

static double known_s(double ns) { return ns > 0 ? ns / 1e9 : NAN; }

static void add_jobs(const struct savings *s, const struct savings_sums *sums, struct page *page)
{
    for (size_t i = 0; i < s->plan.jobs_count; i++)
        page->jobs[i] = (struct view_run_job){
            .job = s->plan.jobs[i].name,
            .workers = s->plan.workers,
            .alone_s = known_s(sums->periods_ns[i][SAVINGS_ALONE]),
            .dedicated_s = known_s(sums->periods_ns[i][SAVINGS_DEDICATED]),
            .shared_s = known_s(sums->periods_ns[i][SAVINGS_SHARED]),
            .loss = sums->losses[i],
            .predicted_loss = s->predicted[i].sum / s->predicted[i].turns}; /* NAN for 0 turns */
}

static void add_events(const struct savings *s, struct page *page)
{
    for (size_t i = 0; i < s->events.count; i++) {
        const struct look_event *event = &s->events.events[i];
        page->events[i] = (struct view_event){event->at_s, event->kind, event->text};
    }
}

int savings_page(const struct savings *s, const struct savings_sums *sums, const char *path)
{
    struct page *page = calloc(1, sizeof *page);
    if (!page)
        return -ENOMEM;
    add_facts(s, &page->facts);
    add_figures(s, sums, page);
    add_moments(s, page);
    add_jobs(s, sums, page);
    add_events(s, page);
    struct view_run run = {.title = "gradpool: cores saved on a live service",
                           .facts = page->facts.facts,
                           .facts_count = page->facts.count,
                           .figures = page->figures,
                           .figures_count = page->figures_count,
                           .moments = page->moments,
                           .moments_count = page->moments_count,
                           .losses = sums->losses,
                           .losses_count = s->plan.jobs_count,
                           .jobs = page->jobs,
                           .jobs_count = s->plan.jobs_count,
                           .events = page->events,
                           .events_count = s->events.count};
    int error = run_write(&run, path);
    free(page);
    return error;
}
