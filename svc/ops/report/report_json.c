/* The report as JSON, also for `gradpool top --json`. Unknown values are left out (O4). */
#include "svc/ops/answer/answer.h"
#include "svc/ops/json/json_put.h"
#include "svc/ops/json/json_views.h"
#include "svc/ops/report/report.h"
#include "svc/ops/snapshot/figures.h"

#include <math.h>

static json_t *part_json(const struct snapshot *s, const struct view_part *part, int *error)
{
    const struct view_job *job = snapshot_job(s, part->job_id);
    json_t *o = json_object();
    json_put_number(o, "job_id", part->job_id, error);
    if (job) {
        JSON_PUT(o, job, error, tenant, job);
    }
    json_put_known(o, "share", part->share, error);
    json_put_known(o, "cores_used", part->rate.cores, error);
    return o;
}

static json_t *lane_json(const struct snapshot *s, const struct view_aggregator *a,
                         const struct view_lane *lane, int *error)
{
    json_t *o = json_object(), *parts = json_array();
    json_put_number(o, "lane", lane->lane, error);
    JSON_PUT(o, a, error, aggregator, node);
    json_put_text(o, "state", lane_state_text(a, lane), error);
    JSON_PUT(o, lane, error, core, tasks);
    json_put_known_number(o, "arena_bytes", lane->arena_bytes, error);
    json_put_known(o, "busy", lane->rate.cores, error);
    json_put_known(o, "rounds_per_s", lane->rate.rounds_per_s, error);
    json_put_known(o, "bytes_per_s", lane->rate.bytes_per_s, error);
    for (size_t i = 0; i < lane->parts_count; i++)
        json_put_last(parts, part_json(s, &lane->parts[i], error), error);
    json_put(o, "jobs", parts, error);
    return o;
}

/* Returns the values of a running or ended job. */
static json_t *figures_json(const struct view_job *job, int *error)
{
    json_t *o = json_object();
    JSON_PUT(o, job, error, tenant, job, job_id, state);
    json_put_number(o, "rounds", job->use.rounds, error);
    json_put_number(o, "pushed_bytes", job->use.pushed_bytes, error);
    for (const struct figure *f = job_figures; f->name; f++)
        json_put_known(o, f->name, f->value(job), error);
    return o;
}

static json_t *job_json(const struct view_job *job, int *error)
{
    json_t *o = figures_json(job, error), *lanes = json_array();
    for (size_t i = 0; i < job->lanes_count; i++)
        json_put_last(lanes, json_integer(job->lanes[i]), error);
    json_put(o, "lanes", lanes, error);
    return o;
}

static json_t *history_json(const struct history *history, int *error)
{
    json_t *samples = json_array();
    for (size_t i = 0; i < history->count; i++)
        json_put_last(samples, json_of_moment(&history->samples[i], error), error);
    return samples;
}

/* Lists ended jobs. Times are on the clock of uptime_s. */
static json_t *ended_json(const struct ended *ended, double now_s, int *error)
{
    json_t *jobs = json_array();
    const struct ended_job *job;
    for (size_t i = 0; (job = ended_at(ended, i, now_s)); i++) {
        json_t *o = figures_json(&job->view, error);
        json_put_known(o, "at_s", job->at_s, error);
        json_put_last(jobs, o, error);
    }
    return jobs;
}

int report_json(const struct snapshot *s, const struct history *history, FILE *out)
{
    int error = 0;
    struct view_cores mean;
    json_t *o = json_object(), *lanes = json_array(), *jobs = json_array();
    json_put_text(o, "endpoint", s->status.endpoint, &error);
    json_put_text(o, "policy", s->status.policy, &error);
    json_put_number(o, "incarnation", s->status.incarnation, &error);
    json_put_known(o, "uptime_s", (double)s->status.uptime_ns / 1e9, &error);
    json_put(o, "cores", json_of_cores(&s->cores, &error), &error);
    for (size_t i = 0; i < s->status.aggregators_count; i++) {
        const struct view_aggregator *a = &s->status.aggregators[i];
        for (size_t j = 0; j < a->lanes_count; j++)
            json_put_last(lanes, lane_json(s, a, &a->lanes[j], &error), &error);
    }
    for (size_t i = 0; i < s->jobs.jobs_count; i++)
        json_put_last(jobs, job_json(&s->jobs.jobs[i], &error), &error);
    json_put(o, "lanes", lanes, &error);
    json_put(o, "jobs", jobs, &error);
    json_put(o, "events", json_of_events(s->status.events, s->status.events_count, &error), &error);
    if (s->status.settings_count > 0)
        json_put(o, "settings", json_of_facts(s->status.settings, s->status.settings_count, &error),
                 &error);
    if (history && history_mean(history, &mean))
        json_put(o, "cores_mean", json_of_cores(&mean, &error), &error);
    if (history) {
        double now_s = (double)s->status.uptime_ns / 1e9;
        json_put(o, "history", history_json(history, &error), &error);
        json_put(o, "ended_jobs", ended_json(&history->ended, now_s, &error), &error);
    }
    return json_put_out(o, error, out);
}

int ops_top_json(const struct snapshot *s, FILE *out) { return report_json(s, NULL, out); }
