/* Metrics of a snapshot. Owns the names, units and maximum numbers of series. An unknown value is
 * left out (O4). A counter begins at 0 when the counting process starts. After the end of a lane or
 * job its series are left out; all other counters never decrease (O6). */
#include "svc/ops/web/metrics.h"

#include "svc/ops/snapshot/figures.h"
#include "svc/ops/web/metrics_counts.h"
#include "svc/ops/web/metrics_line.h"
#include "svc/ops/web/metrics_pools.h"
#include "svc/ops/web/metrics_tables.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static void plain(FILE *out, const char *name, const char *type, const char *help, double value)
{
    if (isnan(value))
        return;
    metrics_family(out, name, type, help);
    fprintf(out, "gradpool_%s %.15g\n", name, value);
}

static size_t least(size_t count, size_t most) { return count < most ? count : most; }

/* --- the service --- */

static void print_states(const struct snapshot *s, FILE *out)
{
    static const char *const states[] = {"up", "silent", "away", "lost", "draining"};
    metrics_family(out, "aggregators", "gauge", "Aggregator processes by state.");
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        unsigned count = 0;
        for (size_t a = 0; a < s->status.aggregators_count; a++)
            count += strcmp(s->status.aggregators[a].state, states[i]) == 0;
        fprintf(out, "gradpool_aggregators{state=\"%s\"} %u\n", states[i], count);
    }
    static const char *const job_states[] = {"joining", "waiting", "training", "failed"};
    metrics_family(out, "jobs", "gauge", "Jobs by state.");
    for (size_t i = 0; i < sizeof job_states / sizeof *job_states; i++) {
        unsigned count = 0;
        for (size_t j = 0; j < s->jobs.jobs_count; j++)
            count += strcmp(s->jobs.jobs[j].state, job_states[i]) == 0;
        fprintf(out, "gradpool_jobs{state=\"%s\"} %u\n", job_states[i], count);
    }
}

static void print_service(const struct snapshot *s, const char *version, FILE *out)
{
    metrics_family(out, "build_info", "gauge", "Version of the program; always 1.");
    fprintf(out, "gradpool_build_info{version=\"%s\"} 1\n", version);
    plain(out, "coordinator_uptime_seconds", "gauge", "Time since the coordinator started.",
          (double)s->status.uptime_ns / 1e9);
    plain(out, "coordinator_cpu_seconds_total", "counter", "CPU time of the coordinator.",
          (double)s->status.cpu_ns / 1e9);
    plain(out, "tasks", "gauge", "Tasks on all lanes.", s->status.tasks);
    plain(out, "cores_allocated", "gauge",
          "Cores that the service has allocated: one for each "
          "lane.",
          s->cores.allocated);
    plain(out, "cores_used", "gauge", "CPU seconds per second that all lanes use.", s->cores.used);
    plain(out, "cores_dedicated", "gauge",
          "Cores of dedicated servers for the same jobs: one for each worker, none for a job of "
          "one worker.",
          s->cores.dedicated);
    plain(out, "cores_saved", "gauge", "cores_dedicated minus cores_allocated.",
          cores_saved(&s->cores));
    print_states(s, out);
}

static void print_aggregators(const struct snapshot *s, FILE *out)
{
    size_t count = least(s->status.aggregators_count, METRICS_AGGREGATORS_MAX);
    metrics_family(out, "aggregator_cpu_seconds_total", "counter",
                   "CPU time of an aggregator process.");
    for (size_t i = 0; i < count; i++) {
        const struct view_aggregator *a = &s->status.aggregators[i];
        if (a->measured_ns == 0)
            continue;
        fprintf(out, "gradpool_aggregator_cpu_seconds_total{aggregator=\"%u\",", a->aggregator);
        metrics_label(out, "node", a->node);
        fprintf(out, "} %.15g\n", (double)a->cpu_ns / 1e9);
    }
}

/* --- lanes --- */

struct lane_metric {
    const char *name, *type, *help;
    double (*value)(const struct view_lane *lane);
};

/* Returns NAN for a lane without counters, as after a start of the coordinator. Prometheus would
 * treat the value 0 as a restart of the lane. */
static double known(const struct view_lane *lane, double value)
{
    return lane->is_measured ? value : NAN;
}

static double lane_cpu(const struct view_lane *l) { return known(l, (double)l->cpu_ns / 1e9); }
static double lane_busy(const struct view_lane *l)
{
    return known(l, (double)l->use.busy_ns / 1e9);
}
static double lane_queue(const struct view_lane *l)
{
    return known(l, (double)l->use.queue_ns / 1e9);
}
static double lane_handled(const struct view_lane *l)
{
    return known(l, (double)l->use.handled_ns / 1e9);
}
static double lane_stalled(const struct view_lane *l)
{
    return known(l, (double)l->use.stalled_ns / 1e9);
}
static double lane_rounds(const struct view_lane *l) { return known(l, (double)l->use.rounds); }
static double lane_bytes(const struct view_lane *l)
{
    return known(l, (double)l->use.pushed_bytes);
}
static double lane_memory(const struct view_lane *l) { return known(l, (double)l->arena_bytes); }
static double lane_memory_max(const struct view_lane *l) { return (double)l->memory_bytes_max; }
static double lane_allocated(const struct view_lane *lane) { return lane_is_allocated(lane); }
static double lane_tasks(const struct view_lane *lane) { return lane->tasks; }
static double lane_jobs(const struct view_lane *lane) { return lane->jobs; }

static const struct lane_metric lane_metrics[] = {
    {"lane_cpu_seconds_total", "counter", "CPU time of a lane's thread.", lane_cpu},
    {"lane_busy_seconds_total", "counter", "CPU time that a lane spent on rounds.", lane_busy},
    {"lane_queue_seconds_total", "counter",
     "Time that rounds of pieces waited for their first chunk on a lane.", lane_queue},
    {"lane_handling_seconds_total", "counter",
     "Time in which rounds of a job were ready or in progress, summed over the lane's jobs.",
     lane_handled},
    {"lane_stalled_seconds_total", "counter", "Time that workers waited for a lane.", lane_stalled},
    {"lane_rounds_total", "counter", "Rounds of pieces that a lane has completed.", lane_rounds},
    {"lane_taken_bytes_total", "counter", "Gradient bytes that a lane has read.", lane_bytes},
    {"lane_memory_bytes", "gauge", "Memory that a lane has allocated.", lane_memory},
    {"lane_memory_limit_bytes", "gauge", "Memory that a lane may allocate.", lane_memory_max},
    {"lane_allocated", "gauge",
     "1: the lane uses its core; 0: the lane is parked, or withheld without tasks.",
     lane_allocated},
    {"lane_tasks", "gauge", "Tasks on a lane.", lane_tasks},
    {"lane_jobs", "gauge", "Jobs with tasks on a lane.", lane_jobs},
};

static void print_lane_info(const struct snapshot *s, FILE *out)
{
    size_t count = 0;
    metrics_family(out, "lane_info", "gauge", "Aggregator, node and core of a lane; always 1.");
    for (size_t i = 0; i < s->status.aggregators_count; i++) {
        const struct view_aggregator *a = &s->status.aggregators[i];
        for (size_t j = 0; j < a->lanes_count && count++ < METRICS_LANES_MAX; j++) {
            fprintf(out, "gradpool_lane_info{lane=\"%u\",aggregator=\"%u\",core=\"%u\",",
                    a->lanes[j].lane, a->aggregator, a->lanes[j].core);
            metrics_label(out, "node", a->node);
            fputs("} 1\n", out);
        }
    }
}

static void print_lanes(const struct snapshot *s, FILE *out)
{
    size_t count = least(s->lanes_count, METRICS_LANES_MAX);
    print_lane_info(s, out);
    for (size_t m = 0; m < sizeof lane_metrics / sizeof *lane_metrics; m++) {
        metrics_family(out, lane_metrics[m].name, lane_metrics[m].type, lane_metrics[m].help);
        for (size_t i = 0; i < count; i++) {
            double value = lane_metrics[m].value(s->lanes[i]);
            if (!isnan(value))
                fprintf(out, "gradpool_%s{lane=\"%u\"} %.15g\n", lane_metrics[m].name,
                        s->lanes[i]->lane, value);
        }
    }
}

/* --- jobs --- */

static void print_jobs(const struct snapshot *s, FILE *out)
{
    const struct view_jobs shown = {s->jobs.jobs, least(s->jobs.jobs_count, METRICS_JOBS_MAX)};
    for (const struct figure *f = job_figures; f->name; f++) {
        char name[64];
        if (!f->is_metric || !figure_is_known(f, &shown))
            continue;
        snprintf(name, sizeof name, "job_%s", f->name);
        metrics_family(out, name, "gauge", f->help);
        for (size_t i = 0; i < shown.jobs_count; i++) {
            double value = f->value(&shown.jobs[i]);
            if (isnan(value))
                continue;
            fprintf(out, "gradpool_%s{", name);
            metrics_job_labels(out, &shown.jobs[i]);
            fprintf(out, "} %.15g\n", value);
        }
    }
}

static void print_control(const struct snapshot *s, FILE *out)
{
    metrics_family(out, "job_coordinator_cpu_seconds_total", "counter",
                   "CPU time of the coordinator for requests of a job's workers.");
    for (size_t i = 0; i < least(s->jobs.jobs_count, METRICS_JOBS_MAX); i++) {
        fputs("gradpool_job_coordinator_cpu_seconds_total{", out);
        metrics_job_labels(out, &s->jobs.jobs[i]);
        fprintf(out, "} %.15g\n", (double)s->jobs.jobs[i].control_ns / 1e9);
    }
    metrics_family(
        out, "tenant_coordinator_cpu_seconds_total", "counter",
        "CPU time of the coordinator for requests of a tenant; '': requests without a key.");
    for (size_t i = 0; i < s->status.payers_count; i++) {
        fputs("gradpool_tenant_coordinator_cpu_seconds_total{", out);
        metrics_label(out, "tenant", s->status.payers[i].tenant);
        fprintf(out, "} %.15g\n", (double)s->status.payers[i].cpu_ns / 1e9);
    }
}

static double part_busy(const struct view_part *part) { return (double)part->use.busy_ns / 1e9; }
static double part_rounds(const struct view_part *part) { return (double)part->use.rounds; }
static double part_bytes(const struct view_part *part) { return (double)part->use.pushed_bytes; }
static double part_memory(const struct view_part *part) { return (double)part->use.heap_bytes; }

static const struct part_metric {
    const char *name, *type, *help;
    double (*value)(const struct view_part *part);
} part_metrics[] = {
    {"lane_job_busy_seconds_total", "counter", "CPU time that a lane spent on a job.", part_busy},
    {"lane_job_rounds_total", "counter", "Rounds of a job's tensors that begin on a lane.",
     part_rounds},
    {"lane_job_taken_bytes_total", "counter", "A job's gradient bytes that a lane has read.",
     part_bytes},
    {"lane_job_memory_bytes", "gauge", "Memory that a lane has allocated for a job.", part_memory},
};

/* Prints a metric for jobs on lanes, up to the limit. Returns the number of all jobs on lanes,
 * printed or not. */
static size_t print_part_metric(const struct snapshot *s, const struct part_metric *m, FILE *out)
{
    size_t count = 0;
    metrics_family(out, m->name, m->type, m->help);
    for (size_t i = 0; i < s->lanes_count; i++) {
        const struct view_lane *lane = s->lanes[i];
        for (size_t p = 0; p < lane->parts_count; p++) {
            const struct view_job *job = snapshot_job(s, lane->parts[p].job_id);
            bool is_shown = job && job - s->jobs.jobs < METRICS_JOBS_MAX && i < METRICS_LANES_MAX;
            if (!job || count++ >= METRICS_LANE_JOBS_MAX || !is_shown)
                continue;
            fprintf(out, "gradpool_%s{lane=\"%u\",", m->name, lane->lane);
            metrics_job_labels(out, job);
            fprintf(out, "} %.15g\n", m->value(&lane->parts[p]));
        }
    }
    return count;
}

static void print_left_out(FILE *out, const char *of, size_t count, size_t most)
{
    fprintf(out, "gradpool_left_out{of=\"%s\"} %zu\n", of, count > most ? count - most : 0);
}

int metrics_print(const struct snapshot *s, const char *version, FILE *out)
{
    size_t lane_jobs_count = 0;
    print_service(s, version, out);
    print_aggregators(s, out);
    print_lanes(s, out);
    print_jobs(s, out);
    print_control(s, out);
    for (size_t i = 0; i < sizeof part_metrics / sizeof *part_metrics; i++)
        lane_jobs_count = print_part_metric(s, &part_metrics[i], out);
    size_t job_ranks_count = metrics_print_counts(s, out);
    size_t tables_count = metrics_print_tables(s, out);
    metrics_print_pools(s, out);
    metrics_family(out, "left_out", "gauge",
                   "Number of objects whose series are left out, "
                   "because their number exceeds a maximum.");
    print_left_out(out, "aggregators", s->status.aggregators_count, METRICS_AGGREGATORS_MAX);
    print_left_out(out, "lanes", s->lanes_count, METRICS_LANES_MAX);
    print_left_out(out, "jobs", s->jobs.jobs_count, METRICS_JOBS_MAX);
    print_left_out(out, "lane_jobs", lane_jobs_count, METRICS_LANE_JOBS_MAX);
    print_left_out(out, "job_ranks", job_ranks_count, METRICS_JOB_RANKS_MAX);
    print_left_out(out, "tables", tables_count, METRICS_TABLES_MAX);
    return ferror(out) ? -EIO : 0;
}
