/* The plan for a job, as text and as JSON. The values of the reply are printed unchanged. */
#include "svc/ops/answer/answer.h"
#include "svc/ops/answer/table.h"
#include "svc/ops/json/json_put.h"

#include <errno.h>
#include <stdbool.h>

#define WIRE(type) Gradpool__Wire__##type

static int print_lanes(const WIRE(PlanReply) * plan, FILE *out)
{
    static const char *const titles[] = {">LANE",      "STATE",       ">PIECES",    ">SIZE",
                                         ">LANE TIME", ">OTHER JOBS", ">PREDICTED", NULL};
    struct table table;
    table_init(&table, titles);
    for (size_t i = 0; i < plan->n_lanes; i++) {
        const WIRE(PlanLane) *lane = plan->lanes[i];
        table_add_known(&table, lane->lane, "%u", lane->lane);
        table_add(&table, "%s", lane->state);
        table_add(&table, "%u", lane->pieces);
        table_add_bytes(&table, lane->bytes);
        table_add_known(&table, plan->period_ns, "%.3f ms", (double)lane->lane_ns / 1e6);
        table_add(&table, "%u", lane->other_jobs);
        table_add_known(&table, plan->period_ns, "%.1f %%", lane->predicted_loss_ppm / 1e4);
    }
    return table_print(&table, out);
}

static int print_costs(const WIRE(PlanReply) * plan, FILE *out)
{
    static const char *const titles[] = {"JOB", ">LOSS NOW", ">LOSS THEN", ">LIMIT", NULL};
    struct table table;
    if (plan->n_jobs == 0)
        return 0;
    fputc('\n', out);
    table_init(&table, titles);
    for (size_t i = 0; i < plan->n_jobs; i++) {
        const WIRE(PlanCost) *cost = plan->jobs[i];
        const char *name = cost->is_new ? "this one" : cost->job;
        table_add(&table, "%s%s%s", cost->tenant, *cost->tenant ? "/" : "", name);
        table_add_known(&table, !cost->is_new, "%.1f %%", cost->before_ppm / 1e4);
        table_add(&table, "%.1f %%", cost->after_ppm / 1e4);
        table_add_known(&table, cost->loss_limit_ppm, "%.1f %%", cost->loss_limit_ppm / 1e4);
    }
    return table_print(&table, out);
}

int ops_plan_text(const WIRE(PlanReply) * plan, FILE *out)
{
    if (plan->code < 0) {
        fprintf(out, "would be refused: %s\n", plan->why);
        return ferror(out) ? -EIO : 0;
    }
    fprintf(out, "would be placed: %s\n", plan->why);
    if (plan->period_ns)
        fprintf(out, "a round takes %.1f ms, and needs %.3f ms of lane time\n\n",
                (double)plan->period_ns / 1e6, (double)plan->lane_ns / 1e6);
    else
        fputs("the job is unknown: the service would measure its rounds first\n\n", out);
    int error = print_lanes(plan, out);
    return error < 0 ? error : print_costs(plan, out);
}

/* --- JSON --- */

static json_t *lane_json(const WIRE(PlanLane) * lane, bool is_known, int *error)
{
    json_t *o = json_object();
    if (lane->lane)
        json_put_number(o, "lane", lane->lane, error);
    JSON_PUT(o, lane, error, state, pieces, bytes, other_jobs);
    if (is_known) {
        JSON_PUT(o, lane, error, lane_ns, predicted_loss_ppm);
    }
    return o;
}

static json_t *cost_json(const WIRE(PlanCost) * cost, int *error)
{
    json_t *o = json_object();
    JSON_PUT(o, cost, error, tenant, job);
    if (!cost->is_new)
        json_put_number(o, "before_ppm", cost->before_ppm, error);
    json_put_number(o, "after_ppm", cost->after_ppm, error);
    json_put_known_number(o, "loss_limit_ppm", cost->loss_limit_ppm, error);
    return o;
}

int ops_plan_json(const WIRE(PlanReply) * plan, FILE *out)
{
    int error = 0;
    json_t *o = json_object(), *lanes = json_array(), *jobs = json_array();
    json_put(o, "would_be_placed", json_boolean(plan->code == 0), &error);
    json_put_text(o, "why", plan->why, &error);
    JSON_PUT_KNOWN(o, plan, &error, period_ns, lane_ns);
    for (size_t i = 0; i < plan->n_lanes; i++)
        json_put_last(lanes, lane_json(plan->lanes[i], plan->period_ns > 0, &error), &error);
    for (size_t i = 0; i < plan->n_jobs; i++)
        json_put_last(jobs, cost_json(plan->jobs[i], &error), &error);
    json_put(o, "lanes", lanes, &error);
    json_put(o, "jobs", jobs, &error);
    return json_put_out(o, error, out);
}
