/* Views as JSON. Members are the fields of the view structs, in their order. */
#include "svc/ops/answer/answer.h"
#include "svc/ops/json/json_put.h"

#include <math.h>

static json_t *use_json(const struct view_use *use, int *error)
{
    json_t *o = json_object();
    json_put_number(o, "heap_bytes", use->heap_bytes, error);
    json_put_number(o, "registered_bytes", use->registered_bytes, error);
    json_put_number(o, "busy_ns", use->busy_ns, error);
    json_put_number(o, "pushed_bytes", use->pushed_bytes, error);
    json_put_number(o, "rounds", use->rounds, error);
    json_put_number(o, "connections", use->connections, error);
    json_put_number(o, "queue_ns", use->queue_ns, error);
    json_put_number(o, "handled_ns", use->handled_ns, error);
    json_put_number(o, "stalled_ns", use->stalled_ns, error);
    json_put_known_number(o, "states", use->states, error);
    if (use->states) {
        json_put_number(o, "copied", use->copied, error);
        json_put_number(o, "empty", use->empty, error);
    }
    return o;
}

static json_t *measured_json(const struct view_measured *m, int *error)
{
    json_t *o = json_object();
    json_put_number(o, "round", m->round, error);
    json_put_number(o, "inputs", m->inputs, error);
    json_put_real(o, "input_squares", m->input_squares, error);
    json_put_real(o, "result_squares", m->result_squares, error);
    json_put_real(o, "loss", m->losses ? m->loss_sum / m->losses : NAN, error);
    return o;
}

static json_t *lane_json(const struct view_lane *lane, int *error)
{
    json_t *o = json_object();
    json_put_number(o, "lane", lane->lane, error);
    json_put_number(o, "core", lane->core, error);
    json_put_number(o, "pu", lane->pu, error);
    json_put(o, "numa", json_integer(lane->numa), error);
    json_put_number(o, "tasks", lane->tasks, error);
    json_put_number(o, "jobs", lane->jobs, error);
    json_put_number(o, "cpu_ns", lane->cpu_ns, error);
    json_put_number(o, "arena_bytes", lane->arena_bytes, error);
    json_put_number(o, "memory_bytes_max", lane->memory_bytes_max, error);
    json_put_text(o, "state", lane->state, error);
    json_put(o, "use", use_json(&lane->use, error), error);
    json_put_text(o, "shm", lane->shm, error);
    json_put_text(o, "ofi", lane->ofi, error);
    return o;
}

static json_t *aggregator_json(const struct view_aggregator *a, int *error)
{
    json_t *o = json_object(), *lanes = json_array();
    json_put_number(o, "aggregator", a->aggregator, error);
    json_put_known_number(o, "pid", a->pid, error);
    json_put_text(o, "node", a->node, error);
    json_put_text(o, "state", a->state, error);
    json_put_number(o, "cpu_ns", a->cpu_ns, error);
    json_put_number(o, "silent_ns", a->silent_ns, error);
    for (size_t i = 0; i < a->lanes_count; i++)
        json_put_last(lanes, lane_json(&a->lanes[i], error), error);
    json_put(o, "lanes", lanes, error);
    return o;
}

/* {"job-tensors": {"used": 3, "max": 262144}, ...} */
static json_t *limits_json(const struct view_limit *all, size_t count, int *error)
{
    json_t *limits = json_object();
    for (size_t i = 0; i < count; i++) {
        json_t *limit = json_object();
        json_put_number(limit, "used", all[i].used, error);
        json_put_number(limit, "max", all[i].most, error);
        json_put(limit, "own", json_boolean(all[i].is_own), error);
        json_put(limits, all[i].name, limit, error);
    }
    return limits;
}

static json_t *job_json(const struct view_job *job, int *error)
{
    json_t *o = json_object(), *lanes = json_array(), *ranks = json_array();
    json_put_text(o, "tenant", job->tenant, error);
    json_put_text(o, "job", job->job, error);
    json_put_number(o, "job_id", job->job_id, error);
    json_put_text(o, "state", job->state, error);
    json_put_text(o, "failure", job->failure, error);
    json_put_text(o, "waits_for", job->waits_for ? job->waits_for : "", error);
    json_put_number(o, "workers", job->workers, error);
    json_put_number(o, "tensors", job->tensors, error);
    json_put_number(o, "tasks", job->tasks, error);
    json_put_number(o, "epoch", job->epoch, error);
    json_put_number(o, "tensor_bytes", job->tensor_bytes, error);
    json_put_known_number(o, "period_ns", job->period_ns, error);
    json_put_known_number(o, "alone_period_ns", job->alone_period_ns, error);
    json_put_known_number(o, "lane_ns", job->lane_ns, error);
    json_put_known_number(o, "feedback_ns", job->feedback_ns, error);
    if (job->period_ns && job->alone_period_ns) {
        json_put_number(o, "loss_ppm", job->loss_ppm, error);
        json_put_number(o, "shared_loss_ppm", job->shared_loss_ppm, error);
    }
    if (job->is_predicted)
        json_put_number(o, "predicted_loss_ppm", job->predicted_loss_ppm, error);
    json_put_known_number(o, "loss_limit_ppm", job->loss_limit_ppm, error);
    if (job->durability)
        json_put_text(o, "durability", job->durability, error);
    for (size_t i = 0; i < job->lanes_count; i++)
        json_put_last(lanes, json_integer(job->lanes[i]), error);
    json_put(o, "lanes", lanes, error);
    json_put(o, "use", use_json(&job->use, error), error);
    if (job->measured.round > 0)
        json_put(o, "measured", measured_json(&job->measured, error), error);
    for (size_t i = 0; i < job->ranks_count; i++) {
        json_t *worker = json_object();
        json_put_number(worker, "rank", job->ranks[i].rank, error);
        json_put_number(worker, "pid", job->ranks[i].pid, error);
        json_put_text(worker, "node", job->ranks[i].node, error);
        json_put_text(worker, "state", job->ranks[i].state, error);
        json_put_last(ranks, worker, error);
    }
    json_put(o, "ranks", ranks, error);
    json_put(o, "limits", limits_json(job->limits, job->limits_count, error), error);
    json_put_number(o, "coordinator_cpu_ns", job->control_ns, error);
    return o;
}

int ops_status_json(const struct view_status *status, FILE *out)
{
    int error = 0;
    json_t *o = json_object(), *aggregators = json_array();
    json_put_text(o, "endpoint", status->endpoint, &error);
    if (status->own_only)
        json_put(o, "own_only", json_true(), &error);
    if (!status->own_only) {
        json_put_text(o, "state_dir", status->state_dir, &error);
        json_put_text(o, "policy", status->policy, &error);
        json_put_number(o, "pid", status->pid, &error);
        json_put_number(o, "cpu_ns", status->cpu_ns, &error);
    }
    json_put_number(o, "jobs", status->jobs, &error);
    json_put_number(o, "tasks", status->tasks, &error);
    json_put_number(o, "uptime_ns", status->uptime_ns, &error);
    json_put_number(o, "incarnation", status->incarnation, &error);
    for (size_t i = 0; i < status->aggregators_count; i++)
        json_put_last(aggregators, aggregator_json(&status->aggregators[i], &error), &error);
    json_put(o, "aggregators", aggregators, &error);
    return json_put_out(o, error, out);
}

int ops_jobs_json(const struct view_jobs *jobs, FILE *out)
{
    int error = 0;
    json_t *o = json_object(), *list = json_array();
    for (size_t i = 0; i < jobs->jobs_count; i++)
        json_put_last(list, job_json(&jobs->jobs[i], &error), &error);
    json_put(o, "jobs", list, &error);
    return json_put_out(o, error, out);
}

static json_t *tenant_json(const struct view_tenant *tenant, int *error)
{
    json_t *o = json_object();
    json_put_text(o, "tenant", tenant->tenant, error);
    json_put_text(o, "role", tenant->role, error);
    json_put_text(o, "state", tenant->state, error);
    json_put_number(o, "added_s", tenant->added_s, error);
    json_put_known_number(o, "loss_limit_ppm", tenant->loss_limit_ppm, error);
    json_put_number(o, "jobs", tenant->jobs, error);
    json_put_number(o, "connections", tenant->connections, error);
    json_put_number(o, "coordinator_cpu_ns", tenant->cpu_ns, error);
    json_put(o, "limits", limits_json(tenant->limits, tenant->limits_count, error), error);
    return o;
}

int ops_tenants_json(const struct view_tenants *tenants, FILE *out)
{
    int error = 0;
    json_t *o = json_object(), *list = json_array();
    for (size_t i = 0; i < tenants->tenants_count; i++)
        json_put_last(list, tenant_json(&tenants->tenants[i], &error), &error);
    json_put(o, "tenants", list, &error);
    return json_put_out(o, error, out);
}
