/* Computes the figures of a finished run, and checks the bounds of waits during the run. */
#include "bench/explore/site/site.h"

#include <math.h>
#include <stdlib.h>

static int figures_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the smallest value such that at least the fraction `part` of all values is not larger.
 * Sorts the values. */
static double figures_percentile(double *values, size_t count, double part)
{
    if (count == 0)
        return 0;
    qsort(values, count, sizeof *values, figures_compare);
    size_t at = (size_t)ceil(part * (double)count);
    return values[at > 0 ? at - 1 : 0];
}

/* --- bounds --- */

static struct bound_case figures_case(const struct site *site, const struct site_wait *wait)
{
    return (struct bound_case){.slots = site->setting->slots,
                               .ahead = wait->ahead,
                               .overdue = wait->overdue,
                               .wide = wait->wide + wait->wide_overdue,
                               .quantum_ns = site->quantum_ns,
                               .probe_ns = site->probe_ns,
                               .leave_ns = site->leave_ns,
                               .rest_max_ns = SCHEDULER_REST_MAX_NS};
}

uint64_t figures_arrival_bound_ns(const struct site *site, const struct site_trial *t)
{
    struct bound_case c = figures_case(site, &t->arrival);
    return bound_arrival_ns(&c);
}

uint64_t figures_rest_bound_ns(const struct site *site, const struct site_trial *t)
{
    struct bound_case c = figures_case(site, &t->rest);
    return bound_rest_ns(&c);
}

static uint64_t figures_max(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Returns the number of workers whose rest is overdue, and how many of these belong to jobs with
 * many workers. */
static struct site_wait figures_overdue(const struct site *site)
{
    struct site_wait sum = {0};
    for (size_t i = 0; i < site->setting->count; i++) {
        const struct site_trial *t = &site->trials[i];
        if (t->state != SITE_RESTING || t->rest.from_ns + SCHEDULER_REST_MAX_NS > site->now_ns)
            continue;
        sum.overdue += t->trial->workers_min;
        sum.wide_overdue += t->trial->workers_min > site->setting->slots / 4;
    }
    return sum;
}

/* Updates the longest probe. A trial without reports probes until the scheduler counts it as
 * running. */
static void figures_watch_silence(struct site *site, struct site_trial *t)
{
    struct scheduler_view view;
    uint32_t job = (uint32_t)(t - site->trials);
    if (!t->trial->is_silent || t->was_silent || t->state != SITE_ACTIVE ||
        scheduler_view(site->scheduler, job, &view) < 0 || view.is_probing)
        return;
    t->was_silent = true;
    site->probe_ns = figures_max(site->probe_ns, site->now_ns - t->start_ns);
}

/* Returns whether a trial probes on more than three quarters of the slots, so that less than a
 * quarter of the slots is left for resting jobs. */
static bool figures_has_wide_probe(const struct site *site)
{
    for (size_t i = 0; i < site->setting->count; i++) {
        const struct site_trial *t = &site->trials[i];
        if (t->state == SITE_ACTIVE && t->feedback_ns == 0 &&
            t->trial->workers_min > site->setting->slots * 3 / 4)
            return true;
    }
    return false;
}

void figures_watch(struct site *site)
{
    struct scheduler_totals totals = scheduler_totals(site->scheduler);
    site->quantum_ns = figures_max(site->quantum_ns, totals.quantum_ns);
    if (totals.waiting + totals.resting == 0)
        return;
    struct site_wait now = figures_overdue(site);
    bool has_wide_probe = figures_has_wide_probe(site);
    for (size_t i = 0; i < site->setting->count; i++) {
        struct site_trial *t = &site->trials[i];
        figures_watch_silence(site, t);
        struct site_wait *wait = t->state == SITE_WAITING ? &t->arrival : &t->rest;
        if (t->state != SITE_WAITING && t->state != SITE_RESTING)
            continue;
        if (has_wide_probe && t->state == SITE_RESTING)
            wait->wide = 1;
        wait->overdue = (uint32_t)figures_max(wait->overdue, now.overdue);
        wait->wide_overdue = (uint32_t)figures_max(wait->wide_overdue, now.wide_overdue);
    }
}

/* --- trials --- */

static void figures_of_trials(struct site *site, struct world_figures *f, double *feedback)
{
    size_t count = 0, whole = 0;
    uint64_t first_ns = site->trials[0].submit_ns, last_ns = 0;
    for (size_t i = 0; i < site->setting->count; i++) {
        const struct site_trial *t = &site->trials[i];
        double whole_s = (double)(t->end_ns - t->submit_ns) / SITE_NS;
        last_ns = figures_max(last_ns, t->end_ns);
        if (t->trial->is_stage)
            continue;
        feedback[count++] = (double)(t->feedback_ns - t->submit_ns) / SITE_NS;
        double speed = t->steps / whole_s / trial_speed(t->trial, 1);
        bool is_whole = t->steps >= trial_steps(t->trial);
        f->speed += speed;
        f->whole_speed += is_whole ? speed : 0;
        whole += is_whole;
    }
    f->speed /= (double)(count ? count : 1);
    f->whole_speed /= (double)(whole ? whole : 1);
    f->makespan_s = (double)(last_ns - first_ns) / SITE_NS;
    f->best = isfinite(site->best) ? site->best : 0;
    f->best_s = site->best_ns > first_ns ? (double)(site->best_ns - first_ns) / SITE_NS : 0;
    f->slot_use = f->makespan_s > 0 ? site->held_s / f->makespan_s / site->setting->slots : 0;
    f->feedback_p50_s = figures_percentile(feedback, count, 0.5);
    f->feedback_p95_s = figures_percentile(feedback, count, 0.95);
}

static void figures_of_stages(const struct site *site, struct world_figures *f)
{
    size_t stages = 0;
    for (size_t i = 0; i < site->setting->count; i++) {
        const struct site_trial *t = &site->trials[i];
        double wait_s = (double)t->arrival.length_ns / SITE_NS;
        double bound_s = (double)figures_arrival_bound_ns(site, t) / SITE_NS;
        if (site->scheduler)
            f->waits_over += wait_s > bound_s;
        if (!t->trial->is_stage)
            continue;
        stages++;
        f->stage_wait_mean_s += wait_s;
        f->stage_wait_max_s = fmax(f->stage_wait_max_s, wait_s);
        if (site->scheduler)
            f->bound_use = fmax(f->bound_use, wait_s / bound_s);
    }
    f->stage_wait_mean_s /= (double)(stages ? stages : 1);
}

void figures_of(struct site *site, struct world_figures *ret_figures)
{
    struct world_figures f = {.resizes = site->resizes,
                              .lane_changes = site->lane_changes,
                              .rests_over = site->rests_over};
    double *feedback = calloc(site->setting->count, sizeof *feedback);
    if (feedback)
        figures_of_trials(site, &f, feedback);
    free(feedback);
    figures_of_stages(site, &f);
    f.pause_p50_s = figures_percentile(site->pauses.values, site->pauses.count, 0.5);
    f.pause_max_s = figures_percentile(site->pauses.values, site->pauses.count, 1);
    *ret_figures = f;
}
