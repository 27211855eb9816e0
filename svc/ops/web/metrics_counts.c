/* Metrics of jobs with backup workers: first the metrics of the jobs, then the metrics of the
 * ranks. */
#include "svc/ops/web/metrics_counts.h"

#include "svc/ops/snapshot/counts.h"
#include "svc/ops/web/metrics.h"
#include "svc/ops/web/metrics_line.h"

static bool counts_are_shown(const struct snapshot *s, size_t job)
{
    return job < METRICS_JOBS_MAX && s->jobs.jobs[job].counts;
}

static void counts_print_reasons(const struct snapshot *s, FILE *out)
{
    metrics_family(out, "job_closed_rounds_total", "counter",
                   "Rounds of a job with backup workers, by the reason of the close.");
    for (size_t i = 0; i < s->jobs.jobs_count; i++) {
        for (size_t k = 0; counts_are_shown(s, i) && k < VIEW_REASONS; k++) {
            fputs("gradpool_job_closed_rounds_total{", out);
            metrics_job_labels(out, &s->jobs.jobs[i]);
            fprintf(out, ",reason=\"%s\"} %.15g\n", counts_reason_names[k],
                    (double)s->jobs.jobs[i].counts->reasons[k]);
        }
    }
}

static double rank_counted(const struct view_counts_rank *rank) { return (double)rank->counted; }
static double rank_dropped(const struct view_counts_rank *rank) { return (double)rank->dropped; }
static double rank_scale(const struct view_counts_rank *rank)
{
    return rank->scale_ns > 0 ? (double)rank->scale_ns / 1e9 : NAN;
}

static const struct rank_metric {
    const char *name, *type, *help;
    double (*value)(const struct view_counts_rank *rank);
} rank_metrics[] = {
    {"job_rank_counted_rounds_total", "counter", "Rounds with a gradient of the rank.",
     rank_counted},
    {"job_rank_dropped_rounds_total", "counter",
     "Rounds without a gradient of the rank, because the gradient came late.", rank_dropped},
    {"job_rank_gradient_seconds", "gauge", "Mean time of a rank's gradients in recent rounds.",
     rank_scale},
};

/* Prints a metric for ranks, up to the limit. Returns the number of all ranks with counts. */
static size_t counts_print_ranks_metric(const struct snapshot *s, const struct rank_metric *m,
                                        FILE *out)
{
    size_t count = 0;
    metrics_family(out, m->name, m->type, m->help);
    for (size_t i = 0; i < s->jobs.jobs_count; i++) {
        const struct view_counts *counts = s->jobs.jobs[i].counts;
        for (size_t r = 0; counts && r < counts->ranks_count; r++) {
            double value = m->value(&counts->ranks[r]);
            if (count++ >= METRICS_JOB_RANKS_MAX || !counts_are_shown(s, i) || isnan(value))
                continue;
            fprintf(out, "gradpool_%s{", m->name);
            metrics_job_labels(out, &s->jobs.jobs[i]);
            fprintf(out, ",rank=\"%u\"} %.15g\n", counts->ranks[r].rank, value);
        }
    }
    return count;
}

size_t metrics_print_counts(const struct snapshot *s, FILE *out)
{
    size_t ranks = 0;
    counts_print_reasons(s, out);
    for (size_t i = 0; i < sizeof rank_metrics / sizeof *rank_metrics; i++)
        ranks = counts_print_ranks_metric(s, &rank_metrics[i], out);
    return ranks;
}
