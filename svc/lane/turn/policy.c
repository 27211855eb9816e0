/* Policies of a lane. Tenants take turns. Among the jobs of a tenant, the order is round-robin by
 * chunk, least work first, or first come first served. Each job orders its own pieces. RULES.md:
 * A20, A77. */
#include "svc/lane/turn/policy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
    [LANE_FAIR] = "fair", [LANE_SHORTEST] = "shortest", [LANE_FIFO] = "fifo"};

int lane_policy_find(const char *name, enum lane_policy *ret_policy)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) == 0) {
            *ret_policy = (enum lane_policy)i;
            return 0;
        }
    }
    return -EINVAL;
}

/* Returns the job with the fewest bytes. A job that was passed over POLICY_PASSES_MAX times
 * precedes this job. */
static struct lane_job *shortest(struct lane_tenant *tenant)
{
    struct lane_job *best = NULL;
    list_for_each_entry (struct lane_job, job, &tenant->running.rest, turn.link) {
        if (job->passes++ >= POLICY_PASSES_MAX) {
            best = job;
            break;
        }
        if (!best || job->due_bytes < best->due_bytes)
            best = job;
    }
    if (best) {
        best->passes = 0;
        list_remove(&best->turn.link);
    }
    return best;
}

static struct lane_job *next_of(struct lane_tenant *tenant, enum lane_policy policy)
{
    if (policy == LANE_SHORTEST)
        return shortest(tenant);
    return list_entry(line_next(&tenant->running), struct lane_job, turn);
}

struct lane_job *policy_next(struct lane *lane)
{
    struct line_entry *turn = line_next(&lane->running);
    if (!turn)
        return NULL;
    struct lane_tenant *tenant = list_entry(turn, struct lane_tenant, turn);
    struct lane_job *job = next_of(tenant, lane->options.policy);
    if (!line_is_empty(&tenant->running))
        line_join_again(&lane->running, turn);
    return job;
}

void policy_put_back(struct lane_job *job)
{
    struct lane_tenant *tenant = job->payer;
    if (line_has(&job->turn))
        return; /* a function that was called during the chunk has already queued the job */
    if (job->lane->options.policy == LANE_FIFO)
        list_prepend(&tenant->running.rest, &job->turn.link);
    else
        line_join_again(&tenant->running, &job->turn);
    if (!line_has(&tenant->turn))
        line_join_again(&job->lane->running, &tenant->turn);
}

void job_wake(struct lane_job *job)
{
    struct lane_tenant *tenant = job->payer;
    if (line_has(&job->turn))
        return;
    line_join(&tenant->running, &job->turn);
    if (!line_has(&tenant->turn))
        line_join(&job->lane->running, &tenant->turn);
}

/* ---- tenants ---- */

/* Only LANE_FAIR counts time within a tenant. */
static void tenant_init(struct lane *lane, struct lane_tenant *tenant, const char *name)
{
    bool by_time = lane->options.policy == LANE_FAIR;
    snprintf(tenant->name, sizeof tenant->name, "%s", name);
    list_init(&tenant->turn.link);
    fabric_group_init(&tenant->group, NULL);
    line_init(&tenant->running, by_time ? lane->options.turn_ns : 0);
    list_append(&lane->tenants, &tenant->link);
}

void policy_init(struct lane *lane)
{
    list_init(&lane->tenants);
    line_init(&lane->running, lane->options.turn_ns);
    tenant_init(lane, &lane->nameless, "");
}

static void tenant_free(struct lane *lane, struct lane_tenant *tenant)
{
    list_remove(&tenant->link);
    list_remove(&tenant->turn.link);
    if (tenant != &lane->nameless)
        free(tenant);
}

void policy_fini(struct lane *lane)
{
    list_for_each_safe (node, &lane->tenants)
        tenant_free(lane, list_entry(node, struct lane_tenant, link));
}

static struct lane_tenant *tenant_find(struct lane *lane, const char *name)
{
    list_for_each_entry (struct lane_tenant, tenant, &lane->tenants, link)
        if (strcmp(tenant->name, name) == 0)
            return tenant;
    struct lane_tenant *tenant = calloc(1, sizeof *tenant);
    if (!tenant)
        return &lane->nameless;
    tenant_init(lane, tenant, name);
    return tenant;
}

static void leave_tenant(struct lane_job *job)
{
    struct lane_tenant *tenant = job->payer;
    list_remove(&job->turn.link);
    if (line_is_empty(&tenant->running))
        list_remove(&tenant->turn.link);
    if (--tenant->jobs_count == 0 && tenant != &job->lane->nameless)
        tenant_free(job->lane, tenant);
}

static void enter_tenant(struct lane_job *job, struct lane_tenant *tenant)
{
    tenant->jobs_count++;
    if (job->payer) {
        fabric_group_move(&job->group, &tenant->group);
        leave_tenant(job);
    } else {
        fabric_group_init(&job->group, &tenant->group);
    }
    job->payer = tenant;
}

void policy_set_tenant(struct lane_job *job, const char *name)
{
    bool was_waiting = line_has(&job->turn);
    if (job->payer && strcmp(job->payer->name, name) == 0)
        return;
    enter_tenant(job, tenant_find(job->lane, name));
    if (was_waiting)
        job_wake(job);
}

void policy_forget(struct lane_job *job) { leave_tenant(job); }
