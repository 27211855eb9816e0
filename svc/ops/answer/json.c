/* Views as JSON. The members are the fields of the view structs, in their order. */
#include "svc/ops/answer/answer.h"
#include "svc/ops/answer/counts.h"
#include "svc/ops/answer/pools.h"
#include "svc/ops/answer/row_tables.h"
#include "svc/ops/answer/stage.h"
#include "svc/ops/json/json_put.h"

#include <math.h>

static json_t *use_json(const struct view_use *use, int *error)
{
    json_t *o = json_object();
    JSON_PUT(o, use, error, heap_bytes, registered_bytes, busy_ns, pushed_bytes, rounds,
             connections, queue_ns, handled_ns, stalled_ns);
    json_put_known_number(o, "states", use->states, error);
    if (use->states) {
        JSON_PUT(o, use, error, copied, empty);
    }
    return o;
}

static json_t *measured_json(const struct view_measured *m, int *error)
{
    json_t *o = json_object();
    JSON_PUT(o, m, error, round, inputs, input_squares, result_squares);
    json_put_real(o, "loss", m->losses ? m->loss_sum / m->losses : NAN, error);
    return o;
}

static json_t *lane_json(const struct view_lane *lane, int *error)
{
    json_t *o = json_object();
    JSON_PUT(o, lane, error, lane, core, pu);
    json_put(o, "numa", json_integer(lane->numa), error);
    JSON_PUT(o, lane, error, tasks, jobs, cpu_ns, arena_bytes, memory_bytes_max, state);
    json_put(o, "use", use_json(&lane->use, error), error);
    JSON_PUT(o, lane, error, shm, ofi);
    return o;
}

static json_t *aggregator_json(const struct view_aggregator *a, int *error)
{
    json_t *o = json_object(), *lanes = json_array();
    json_put_number(o, "aggregator", a->aggregator, error);
    json_put_known_number(o, "pid", a->pid, error);
    JSON_PUT(o, a, error, node, state, cpu_ns, silent_ns);
    for (size_t i = 0; i < a->lanes_count; i++)
        json_put_last(lanes, lane_json(&a->lanes[i], error), error);
    json_put(o, "lanes", lanes, error);
    return o;
}

/* Returns limits such as {"job-tensors": {"used": 3, "max": 262144}, ...}. */
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

static json_t *job_limits_json(const struct view_job *job, int *error)
{
    size_t count = 0;
    while (job->limits && job->limits[count].name)
        count++;
    return limits_json(job->limits, count, error);
}

static json_t *job_json(const struct view_job *job, int *error)
{
    json_t *o = json_object(), *lanes = json_array(), *ranks = json_array();
    JSON_PUT(o, job, error, tenant, job, job_id, state, failure);
    json_put_text(o, "waits_for", job->waits_for ? job->waits_for : "", error);
    JSON_PUT(o, job, error, workers, tensors, tasks, epoch, tensor_bytes);
    JSON_PUT_KNOWN(o, job, error, period_ns, alone_period_ns, lane_ns, feedback_ns);
    if (job->period_ns && job->alone_period_ns) {
        JSON_PUT(o, job, error, loss_ppm, shared_loss_ppm);
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
    for (size_t i = 0; job->ranks && job->ranks[i].node; i++) {
        json_t *worker = json_object();
        json_put_number(worker, "rank", job->ranks[i].rank, error);
        json_put_number(worker, "pid", job->ranks[i].pid, error);
        json_put_text(worker, "node", job->ranks[i].node, error);
        json_put_text(worker, "state", job->ranks[i].state, error);
        json_put_last(ranks, worker, error);
    }
    json_put(o, "ranks", ranks, error);
    if (job->counts)
        json_put(o, "counts", counts_json(job->counts, error), error);
    if (job->stage)
        json_put(o, "stage", stage_json(job->stage, error), error);
    if (job->tables)
        row_tables_put(o, job->tables, error);
    json_put(o, "limits", job_limits_json(job, error), error);
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
        JSON_PUT(o, status, &error, state_dir, policy, pid, cpu_ns);
    }
    JSON_PUT(o, status, &error, jobs, tasks, uptime_ns, incarnation);
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
    if (jobs->pools)
        pools_put(o, jobs->pools, &error);
    return json_put_out(o, error, out);
}

static json_t *tenant_json(const struct view_tenant *tenant, int *error)
{
    json_t *o = json_object();
    JSON_PUT(o, tenant, error, tenant, role, state, added_s);
    json_put_known_number(o, "loss_limit_ppm", tenant->loss_limit_ppm, error);
    JSON_PUT(o, tenant, error, jobs, connections);
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
