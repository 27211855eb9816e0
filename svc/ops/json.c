/* Views as JSON. The only file that knows jansson. Members are the fields of the view structs, in
 * their order; a member that cannot be made makes the whole fail. */
#include "svc/ops/ops.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>

/* Takes over `value`. */
static void put(json_t *object, const char *name, json_t *value, int *error)
{
    if (!object || !value || json_object_set_new(object, name, value) < 0)
        *error = -ENOMEM;
}

static void put_number(json_t *object, const char *name, uint64_t value, int *error)
{
    put(object, name, json_integer((json_int_t)value), error);
}

/* Names come from users; bytes that are not UTF-8 are shown as "?". */
static void put_text(json_t *object, const char *name, const char *value, int *error)
{
    json_t *text = json_string(value ? value : "");
    put(object, name, text ? text : json_string("?"), error);
}

static json_t *use_json(const struct view_use *use, int *error)
{
    json_t *o = json_object();
    put_number(o, "heap_bytes", use->heap_bytes, error);
    put_number(o, "registered_bytes", use->registered_bytes, error);
    put_number(o, "busy_ns", use->busy_ns, error);
    put_number(o, "pushed_bytes", use->pushed_bytes, error);
    put_number(o, "rounds", use->rounds, error);
    put_number(o, "connections", use->connections, error);
    return o;
}

/* JSON has no NaN and no infinity: null. */
static void put_real(json_t *object, const char *name, double value, int *error)
{
    put(object, name, isfinite(value) ? json_real(value) : json_null(), error);
}

static json_t *measured_json(const struct view_measured *m, int *error)
{
    json_t *o = json_object();
    put_number(o, "round", m->round, error);
    put_number(o, "inputs", m->inputs, error);
    put_real(o, "input_squares", m->input_squares, error);
    put_real(o, "result_squares", m->result_squares, error);
    put_real(o, "loss", m->losses ? m->loss_sum / m->losses : NAN, error);
    return o;
}

static json_t *lane_json(const struct view_lane *lane, int *error)
{
    json_t *o = json_object();
    put_number(o, "lane", lane->lane, error);
    put_number(o, "core", lane->core, error);
    put_number(o, "pu", lane->pu, error);
    put(o, "numa", json_integer(lane->numa), error);
    put_number(o, "tasks", lane->tasks, error);
    put_number(o, "jobs", lane->jobs, error);
    put_number(o, "cpu_ns", lane->cpu_ns, error);
    put_number(o, "arena_bytes", lane->arena_bytes, error);
    put_number(o, "memory_bytes_max", lane->memory_bytes_max, error);
    put(o, "use", use_json(&lane->use, error), error);
    put_text(o, "shm", lane->shm, error);
    put_text(o, "ofi", lane->ofi, error);
    return o;
}

static void append(json_t *array, json_t *value, int *error)
{
    if (json_array_append_new(array, value) < 0)
        *error = -ENOMEM;
}

static json_t *aggregator_json(const struct view_aggregator *a, int *error)
{
    json_t *o = json_object(), *lanes = json_array();
    put_number(o, "aggregator", a->aggregator, error);
    put_number(o, "pid", a->pid, error);
    put_text(o, "node", a->node, error);
    put_text(o, "state", a->state, error);
    put_number(o, "cpu_ns", a->cpu_ns, error);
    put_number(o, "silent_ns", a->silent_ns, error);
    for (size_t i = 0; i < a->lanes_count; i++)
        append(lanes, lane_json(&a->lanes[i], error), error);
    put(o, "lanes", lanes, error);
    return o;
}

/* {"job-tensors": {"used": 3, "max": 262144}, ...} */
static json_t *limits_json(const struct view_job *job, int *error)
{
    json_t *limits = json_object();
    for (size_t i = 0; i < job->limits_count; i++) {
        json_t *limit = json_object();
        put_number(limit, "used", job->limits[i].used, error);
        put_number(limit, "max", job->limits[i].most, error);
        put(limits, job->limits[i].name, limit, error);
    }
    return limits;
}

static json_t *job_json(const struct view_job *job, int *error)
{
    json_t *o = json_object(), *lanes = json_array(), *ranks = json_array();
    put_text(o, "tenant", job->tenant, error);
    put_text(o, "job", job->job, error);
    put_number(o, "job_id", job->job_id, error);
    put_text(o, "state", job->state, error);
    put_text(o, "failure", job->failure, error);
    put_number(o, "workers", job->workers, error);
    put_number(o, "tensors", job->tensors, error);
    put_number(o, "tasks", job->tasks, error);
    put_number(o, "epoch", job->epoch, error);
    put_number(o, "tensor_bytes", job->tensor_bytes, error);
    put_number(o, "period_ns", job->period_ns, error);
    put_number(o, "alone_period_ns", job->alone_period_ns, error);
    put_number(o, "lane_ns", job->lane_ns, error);
    put_number(o, "loss_ppm", job->loss_ppm, error);
    for (size_t i = 0; i < job->lanes_count; i++)
        append(lanes, json_integer(job->lanes[i]), error);
    put(o, "lanes", lanes, error);
    put(o, "use", use_json(&job->use, error), error);
    if (job->measured.round > 0)
        put(o, "measured", measured_json(&job->measured, error), error);
    for (size_t i = 0; i < job->ranks_count; i++) {
        json_t *worker = json_object();
        put_number(worker, "rank", job->ranks[i].rank, error);
        put_number(worker, "pid", job->ranks[i].pid, error);
        put_text(worker, "node", job->ranks[i].node, error);
        put_text(worker, "state", job->ranks[i].state, error);
        append(ranks, worker, error);
    }
    put(o, "ranks", ranks, error);
    put(o, "limits", limits_json(job, error), error);
    return o;
}

/* Takes over `o`. */
static int print(json_t *o, int error, FILE *out)
{
    if (error == 0 && json_dumpf(o, out, JSON_INDENT(2)) < 0)
        error = -EIO;
    json_decref(o);
    if (error == 0 && (fputc('\n', out) == EOF || fflush(out) == EOF))
        error = -EIO;
    return error;
}

int ops_status_json(const struct view_status *status, FILE *out)
{
    int error = 0;
    json_t *o = json_object(), *aggregators = json_array();
    put_text(o, "endpoint", status->endpoint, &error);
    put_text(o, "state_dir", status->state_dir, &error);
    put_text(o, "policy", status->policy, &error);
    put_number(o, "pid", status->pid, &error);
    put_number(o, "jobs", status->jobs, &error);
    put_number(o, "tasks", status->tasks, &error);
    put_number(o, "uptime_ns", status->uptime_ns, &error);
    put_number(o, "cpu_ns", status->cpu_ns, &error);
    put_number(o, "incarnation", status->incarnation, &error);
    for (size_t i = 0; i < status->aggregators_count; i++)
        append(aggregators, aggregator_json(&status->aggregators[i], &error), &error);
    put(o, "aggregators", aggregators, &error);
    return print(o, error, out);
}

int ops_jobs_json(const struct view_jobs *jobs, FILE *out)
{
    int error = 0;
    json_t *o = json_object(), *list = json_array();
    for (size_t i = 0; i < jobs->jobs_count; i++)
        append(list, job_json(&jobs->jobs[i], &error), &error);
    put(o, "jobs", list, &error);
    return print(o, error, out);
}

static json_t *tenant_json(const struct view_tenant *tenant, int *error)
{
    json_t *o = json_object();
    put_text(o, "tenant", tenant->tenant, error);
    put_text(o, "role", tenant->role, error);
    put_text(o, "state", tenant->state, error);
    put_number(o, "added_s", tenant->added_s, error);
    put_number(o, "jobs", tenant->jobs, error);
    put_number(o, "connections", tenant->connections, error);
    return o;
}

int ops_tenants_json(const struct view_tenants *tenants, FILE *out)
{
    int error = 0;
    json_t *o = json_object(), *list = json_array();
    for (size_t i = 0; i < tenants->tenants_count; i++)
        append(list, tenant_json(&tenants->tenants[i], &error), &error);
    put(o, "tenants", list, &error);
    return print(o, error, out);
}
