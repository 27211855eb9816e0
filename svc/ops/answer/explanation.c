/* Why each task of a job is on its lane, as text and as JSON. The values of the reply are printed
 * unchanged. */
#include "svc/ops/answer/answer.h"
#include "svc/ops/answer/counts.h"
#include "svc/ops/answer/pools.h"
#include "svc/ops/answer/row_tables.h"
#include "svc/ops/answer/stage.h"
#include "svc/ops/answer/table.h"
#include "svc/ops/json/json_put.h"
#include "svc/ops/snapshot/stage.h"
#include "svc/wire/durability.h"

#include <stdlib.h>

#define WIRE(type) Gradpool__Wire__##type

/* Adds a time, or a dash if it is unknown (0). */
static void add_ms(struct table *table, uint64_t ns)
{
    table_add_known(table, ns, "%.3f ms", (double)ns / 1e6);
}

/* Prints the number of pieces whose state has a replica. This number is unknown until the lanes
 * have answered. */
static void print_durability(const WIRE(JobView) * job, FILE *out)
{
    bool is_replica = job->durability == DURABILITY_REPLICA;
    if (!is_replica && job->durability != DURABILITY_WORKER)
        return;
    fprintf(out, "durability: %s, a copy of parameters and moments is %s",
            durability_name(job->durability),
            is_replica ? "on another aggregator" : "in a worker's memory");
    if (job->use && job->use->states)
        fprintf(out, ": %u of %u pieces", job->use->copied, job->use->states);
    if (job->use && job->use->empty)
        fprintf(out, ", %u pieces need no copy (never set, or failed)", job->use->empty);
    fputc('\n', out);
}

static void print_pool(const WIRE(JobView) * job, FILE *out)
{
    if (!job->pool)
        return;
    const struct view_pool_job pool = pools_view_job(job->pool);
    pools_print_job(&pool, out);
}

static void print_figures(const WIRE(ExplainedJob) * explained, FILE *out)
{
    const WIRE(JobView) *job = explained->job;
    fprintf(out, "job %s%s%s: ", job->tenant, *job->tenant ? "/" : "", job->job);
    if (job->period_ns)
        fprintf(out, "a round takes %.1f ms", (double)job->period_ns / 1e6);
    else
        fputs("not measured yet (a job is measured some seconds after its first rounds)", out);
    if (job->alone_period_ns)
        fprintf(out, ", %.1f ms without other jobs", (double)job->alone_period_ns / 1e6);
    if (job->lane_ns)
        fprintf(out, ", lane time %.3f ms", (double)job->lane_ns / 1e6);
    fputc('\n', out);
    if (job->feedback_ns)
        fprintf(out, "first results %.3f s after the job arrived\n",
                (double)job->feedback_ns / 1e9);
    if (job->period_ns && job->alone_period_ns)
        fprintf(
            out,
            "slower than alone: %.1f %% (by sharing lanes %.1f %%, for other reasons %.1f %%), ",
            job->loss_ppm / 1e4, job->shared_loss_ppm / 1e4,
            (job->loss_ppm - job->shared_loss_ppm) / 1e4);
    else
        fputs("slower than alone: not measured yet, ", out);
    if (job->is_predicted)
        fprintf(out, "predicted by sharing %.1f %%, ", job->predicted_loss_ppm / 1e4);
    else
        fputs("predicted by sharing: not known yet, ", out);
    if (job->loss_limit_ppm)
        fprintf(out, "loss limit %.1f %%\n", job->loss_limit_ppm / 1e4);
    else
        fputs("no loss limit: the service aims at losses of at most 5 %, but refuses no job\n",
              out);
    print_durability(job, out);
    print_pool(job, out);
    fputc('\n', out);
}

static int print_lanes(const WIRE(ExplainedJob) * job, FILE *out)
{
    static const char *const titles[] = {">LANE",      ">TASKS", ">SIZE",    ">LANE TIME",
                                         ">HANDLING",  ">QUEUE", ">STALLED", ">OTHER JOBS",
                                         ">PREDICTED", "WHY",    NULL};
    struct table table;
    table_init(&table, titles);
    for (size_t i = 0; i < job->n_lanes; i++) {
        const WIRE(LaneChoice) *lane = job->lanes[i];
        table_add(&table, "%u", lane->lane);
        table_add(&table, "%u", lane->tasks);
        table_add_bytes(&table, lane->bytes);
        add_ms(&table, lane->lane_ns);
        add_ms(&table, lane->handled_ns);
        add_ms(&table, lane->queue_ns);
        add_ms(&table, lane->stalled_ns);
        table_add(&table, "%u", lane->other_jobs);
        table_add_known(&table, job->job->is_predicted, "%.1f %%", lane->predicted_loss_ppm / 1e4);
        table_add(&table, "%s", lane->why);
    }
    return table_print(&table, out);
}

static int print_tasks(const WIRE(ExplainedJob) * job, FILE *out)
{
    static const char *const titles[] = {">TASK", ">LANE", ">SIZE", ">LANE TIME", "TENSORS", NULL};
    struct table table;
    table_init(&table, titles);
    for (size_t i = 0; i < job->n_tasks; i++) {
        const WIRE(TaskChoice) *task = job->tasks[i];
        table_add(&table, "%u", task->task);
        table_add(&table, "%u", task->lane);
        table_add_bytes(&table, task->bytes);
        add_ms(&table, task->lane_ns);
        if (task->tensors > 1)
            table_add(&table, "%s and %u more", task->tensor, task->tensors - 1);
        else
            table_add(&table, "%s", task->tensor);
    }
    int error = table_print(&table, out);
    if (error == 0 && job->job->tasks > job->n_tasks)
        fprintf(out, "and %zu more tasks\n", job->job->tasks - job->n_tasks);
    return error;
}

/* Prints the counts of a job with backup workers, and of its ranks. */
static int print_counts(const WIRE(JobView) * job, FILE *out)
{
    struct view_counts *counts;
    int error = counts_view(job->use ? job->use->counts : NULL, &counts);
    if (error < 0 || !counts)
        return error;
    counts_print(counts, out);
    fputc('\n', out);
    error = counts_print_ranks(counts, out);
    fputc('\n', out);
    free(counts);
    return error;
}

static int print_stage(const WIRE(JobView) * job, FILE *out)
{
    struct view_stage *stage;
    int error = stage_view_create(job, &stage);
    if (error < 0 || !stage)
        return error;
    error = stage_print(stage, out);
    fputc('\n', out);
    free(stage);
    return error;
}

static int print_tables(const WIRE(JobView) * job, FILE *out)
{
    struct view_tables *tables;
    int error = row_tables_view(job, &tables);
    if (error < 0 || !tables)
        return error;
    error = row_tables_print(tables, out);
    fputc('\n', out);
    free(tables);
    return error;
}

int ops_explain_text(const WIRE(ExplainReply) * reply, FILE *out)
{
    int error = 0;
    for (size_t i = 0; i < reply->n_jobs && error == 0; i++) {
        if (i > 0)
            fputc('\n', out);
        print_figures(reply->jobs[i], out);
        error = print_counts(reply->jobs[i]->job, out)
                    ?: print_stage(reply->jobs[i]->job, out)
                    ?: print_tables(reply->jobs[i]->job, out)
                    ?: print_lanes(reply->jobs[i], out);
        if (error < 0)
            return error;
        fputc('\n', out);
        error = print_tasks(reply->jobs[i], out);
    }
    return error;
}

/* --- JSON --- */

static json_t *lane_json(const WIRE(LaneChoice) * lane, int *error)
{
    json_t *o = json_object();
    JSON_PUT(o, lane, error, lane, tasks, bytes);
    JSON_PUT_KNOWN(o, lane, error, lane_ns, queue_ns, handled_ns, stalled_ns);
    json_put_number(o, "other_jobs", lane->other_jobs, error);
    json_put_known_number(o, "predicted_loss_ppm", lane->predicted_loss_ppm, error);
    json_put_text(o, "why", lane->why, error);
    return o;
}

static json_t *task_json(const WIRE(TaskChoice) * task, int *error)
{
    json_t *o = json_object();
    JSON_PUT(o, task, error, task, lane, bytes);
    json_put_known_number(o, "lane_ns", task->lane_ns, error);
    JSON_PUT(o, task, error, tensor, tensors);
    return o;
}

static void put_counts(json_t *o, const WIRE(JobView) * job, int *error)
{
    struct view_counts *counts = NULL;
    int own_error = counts_view(job->use ? job->use->counts : NULL, &counts);
    if (own_error < 0)
        *error = own_error;
    if (counts)
        json_put(o, "counts", counts_json(counts, error), error);
    free(counts);
}

static void put_tables(json_t *o, const WIRE(JobView) * job, int *error)
{
    struct view_tables *tables;
    int own_error = row_tables_view(job, &tables);
    if (own_error < 0)
        *error = own_error;
    if (tables)
        row_tables_put(o, tables, error);
    free(tables);
}

static void put_stage(json_t *o, const WIRE(JobView) * job, int *error)
{
    struct view_stage *stage;
    int own_error = stage_view_create(job, &stage);
    if (own_error < 0)
        *error = own_error;
    if (stage)
        json_put(o, "stage", stage_json(stage, error), error);
    free(stage);
}

static void put_pool(json_t *o, const WIRE(JobView) * job, int *error)
{
    if (!job->pool)
        return;
    const struct view_pool_job pool = pools_view_job(job->pool);
    json_put(o, "pool", pools_job_json(&pool, error), error);
}

static json_t *job_json(const WIRE(ExplainedJob) * explained, int *error)
{
    const WIRE(JobView) *job = explained->job;
    json_t *o = json_object(), *lanes = json_array(), *tasks = json_array();
    JSON_PUT(o, job, error, tenant, job, job_id);
    JSON_PUT_KNOWN(o, job, error, period_ns, alone_period_ns, lane_ns, feedback_ns);
    if (job->period_ns && job->alone_period_ns) {
        JSON_PUT(o, job, error, loss_ppm, shared_loss_ppm);
    }
    if (job->is_predicted)
        json_put_number(o, "predicted_loss_ppm", job->predicted_loss_ppm, error);
    json_put_known_number(o, "loss_limit_ppm", job->loss_limit_ppm, error);
    put_counts(o, job, error);
    put_stage(o, job, error);
    put_tables(o, job, error);
    put_pool(o, job, error);
    json_put_number(o, "tasks_count", job->tasks, error);
    for (size_t i = 0; i < explained->n_lanes; i++)
        json_put_last(lanes, lane_json(explained->lanes[i], error), error);
    for (size_t i = 0; i < explained->n_tasks; i++)
        json_put_last(tasks, task_json(explained->tasks[i], error), error);
    json_put(o, "lanes", lanes, error);
    json_put(o, "tasks", tasks, error);
    return o;
}

int ops_explain_json(const WIRE(ExplainReply) * reply, FILE *out)
{
    int error = 0;
    json_t *o = json_object(), *jobs = json_array();
    for (size_t i = 0; i < reply->n_jobs; i++)
        json_put_last(jobs, job_json(reply->jobs[i], &error), &error);
    json_put(o, "jobs", jobs, &error);
    return json_put_out(o, error, out);
}
