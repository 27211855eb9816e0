/* Computes the use of jobs and tenants, and refuses requests that exceed a limit. Owns no counters:
 * a job has its own, and the use of a tenant is the sum over its jobs (RULES.md: K13). */
#include "svc/coordinator/job/quota.h"

#include "svc/coordinator/aggregator/busy_time.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/job/table.h"
#include "svc/coordinator/measure/measure.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <stdio.h>

void quota_of_job(const struct job *job, struct quota *ret_quota)
{
    *ret_quota = (struct quota){0};
    uint64_t *used = ret_quota->used;
    used[LIMIT_JOB_WORKERS] = job->workers;
    used[LIMIT_JOB_TENSORS] = job->tensors_count + job->index->tables.count;
    used[LIMIT_JOB_PIECES] = job->index->pieces_count + job->index->tables.shards;
    used[LIMIT_JOB_BYTES] = job->index->bytes;
    used[LIMIT_JOB_TABLE_BYTES] = job_allowances_bytes(job);
    used[LIMIT_JOB_REQUESTS] = job->waiting->requests;
}

void quota_of_tenant(const struct service *s, const struct tenant *tenant, struct quota *ret_quota)
{
    *ret_quota = (struct quota){0};
    uint64_t *used = ret_quota->used;
    used[LIMIT_TENANT_CONNECTIONS] = tenant->connections;
    list_for_each_entry (const struct job, job, &s->jobs, link) {
        if (job->tenant != tenant)
            continue;
        used[LIMIT_TENANT_JOBS]++;
        used[LIMIT_TENANT_WORKERS] += job->workers;
        used[LIMIT_TENANT_TENSORS] += job->tensors_count + job->index->tables.count;
        used[LIMIT_TENANT_PIECES] += job->index->pieces_count + job->index->tables.shards;
        used[LIMIT_TENANT_BYTES] += job->index->bytes;
        used[LIMIT_TENANT_TABLE_BYTES] += job_allowances_bytes(job);
    }
}

static void count_lent_on(struct service *s, const WIRE(LaneUse) * lane)
{
    list_for_each (node, &s->door->tenants)
        list_entry(node, struct tenant, link)->regions = 0;
    for (size_t i = 0; lane && i < lane->n_jobs; i++) {
        const struct job *job = jobs_find_id(s, lane->jobs[i]->job_id);
        if (!job)
            continue;
        struct tenant *t = job->tenant;
        t->regions += lane->jobs[i]->registered_regions;
        t->regions_most = t->regions > t->regions_most ? t->regions : t->regions_most;
        t->lent += lane->jobs[i]->registered_bytes;
        t->lent_most = t->lent > t->lent_most ? t->lent : t->lent_most;
    }
}

/* Called once for each reply, not for each job, because the sums need the counters of all lanes. */
void quota_count_lent(struct service *s)
{
    list_for_each_entry (struct tenant, t, &s->door->tenants, link)
        t->regions_most = t->lent_most = 0;
    list_for_each_entry (const struct aggregator, a, &s->aggregators, link) {
        list_for_each (other, &s->door->tenants)
            list_entry(other, struct tenant, link)->lent = 0;
        for (size_t i = 0; i < a->lanes_count; i++)
            count_lent_on(s, stats_of_lane(&a->lanes[i]));
    }
}

WIRE(LimitUse) quota_row(const struct limits *limits, enum limit limit, uint64_t used)
{
    return MESSAGE_PART(LimitUse, limit_use, .name = (char *)limit_about(limit)->name, .used = used,
                        .most = limits->most[limit], .is_own = limits->own >> limit & 1);
}

int quota_check_new_job(const struct service *s, const struct tenant *tenant, const char *name,
                        uint32_t workers, struct err *err)
{
    const struct limits *limits = &tenant->limits;
    char who[192];
    struct quota quota;
    snprintf(who, sizeof who, "job %s", name);
    int error = limits_check(limits, LIMIT_JOB_WORKERS, who, 0, workers, err);
    if (error < 0)
        return error;
    quota_of_tenant(s, tenant, &quota);
    tenant_title(tenant, who, sizeof who);
    error = limits_check(limits, LIMIT_TENANT_JOBS, who, quota.used[LIMIT_TENANT_JOBS], 1, err);
    return error < 0 ? error
                     : limits_check(limits, LIMIT_TENANT_WORKERS, who,
                                    quota.used[LIMIT_TENANT_WORKERS], workers, err);
}

/* Numbers of tensors, pieces and bytes, in the order of enum limit. `more`: numbers for the new
 * tensors. `counted`: the part of `more` that the sums of the job already include. */
struct quota_news {
    uint64_t more[3], counted[3];
};

/* Counts the new tensors. For a tensor without pieces the smallest possible number of pieces is
 * used, so that a declare can be refused before pieces are computed. */
static struct quota_news count_news(const struct service *s, struct tensor *const *tensors,
                                    size_t count)
{
    struct quota_news news = {{count, 0, 0}, {count, 0, 0}};
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = tensor_bytes(tensors[i], tensors[i]->elements);
        uint64_t least = (bytes + piece_bytes_max(s) - 1) / piece_bytes_max(s);
        news.more[1] += tensors[i]->pieces_count ? tensors[i]->pieces_count : least;
        news.counted[1] += tensors[i]->pieces_count;
        news.more[2] += bytes;
        news.counted[2] += bytes;
    }
    return news;
}

static int check_news(const struct limits *limits, const struct quota *quota, enum limit first,
                      const struct quota_news *news, const char *who, struct err *err)
{
    int error = 0;
    /* bytes are checked first: too many bytes also cause too many pieces */
    for (int i = 2; i >= 0 && error == 0; i--)
        error = limits_check(limits, first + (enum limit)i, who,
                             quota->used[first + i] - news->counted[i], news->more[i], err);
    return error;
}

int quota_check_declared(const struct job *job, struct tensor *const *tensors, size_t count,
                         struct err *err)
{
    const struct service *s = job->service;
    struct quota_news news = count_news(s, tensors, count);
    char who[192];
    struct quota quota;
    snprintf(who, sizeof who, "job %s", job->name);
    quota_of_job(job, &quota);
    int error = check_news(&job->tenant->limits, &quota, LIMIT_JOB_TENSORS, &news, who, err);
    if (error < 0)
        return error;
    tenant_title(job->tenant, who, sizeof who);
    quota_of_tenant(s, job->tenant, &quota);
    return check_news(&job->tenant->limits, &quota, LIMIT_TENANT_TENSORS, &news, who, err);
}

int quota_check_table(const struct job *job, uint32_t shards, struct err *err)
{
    const struct quota_news news = {.more = {1, shards}};
    const struct limits *limits = &job->tenant->limits;
    char who[192];
    struct quota quota;
    snprintf(who, sizeof who, "job %s", job->name);
    quota_of_job(job, &quota);
    int error = check_news(limits, &quota, LIMIT_JOB_TENSORS, &news, who, err);
    if (error < 0)
        return error;
    tenant_title(job->tenant, who, sizeof who);
    quota_of_tenant(job->service, job->tenant, &quota);
    return check_news(limits, &quota, LIMIT_TENANT_TENSORS, &news, who, err);
}

int quota_check_rows(const struct job *job, uint64_t bytes, struct err *err)
{
    const struct limits *limits = &job->tenant->limits;
    char who[192];
    struct quota quota;
    snprintf(who, sizeof who, "job %s", job->name);
    quota_of_job(job, &quota);
    int error = limits_check(limits, LIMIT_JOB_TABLE_BYTES, who, quota.used[LIMIT_JOB_TABLE_BYTES],
                             bytes, err);
    if (error < 0)
        return error;
    tenant_title(job->tenant, who, sizeof who);
    quota_of_tenant(job->service, job->tenant, &quota);
    return limits_check(limits, LIMIT_TENANT_TABLE_BYTES, who, quota.used[LIMIT_TENANT_TABLE_BYTES],
                        bytes, err);
}

static uint64_t rows_left(const struct limits *limits, enum limit limit, uint64_t used)
{
    return used < limits->most[limit] ? limits->most[limit] - used : 0;
}

uint64_t quota_rows_room(const struct job *job)
{
    const struct limits *limits = &job->tenant->limits;
    struct quota quota;
    quota_of_job(job, &quota);
    uint64_t of_job = rows_left(limits, LIMIT_JOB_TABLE_BYTES, quota.used[LIMIT_JOB_TABLE_BYTES]);
    quota_of_tenant(job->service, job->tenant, &quota);
    uint64_t of_tenant =
        rows_left(limits, LIMIT_TENANT_TABLE_BYTES, quota.used[LIMIT_TENANT_TABLE_BYTES]);
    return of_job < of_tenant ? of_job : of_tenant;
}

int quota_check_count(const struct tenant *tenant, size_t tensors, const char *job, struct err *err)
{
    char who[192];
    snprintf(who, sizeof who, "job %s", job);
    return limits_check(&tenant->limits, LIMIT_JOB_TENSORS, who, 0, tensors, err);
}

int quota_check_request(const struct job *job, struct err *err)
{
    char who[192];
    snprintf(who, sizeof who, "job %s", job->name);
    return limits_check(&job->tenant->limits, LIMIT_JOB_REQUESTS, who, job->waiting->requests, 1,
                        err);
}

static uint64_t lane_bytes(const struct lane *lane, uint64_t pieces, uint64_t ranks)
{
    return pieces * lane->piece_bytes + ranks * lane->rank_bytes;
}

static int check_job_on_lane(struct job *job, struct lane *lane, uint64_t more, struct err *err)
{
    const struct share *share = jobs_share(job, lane);
    char who[192];
    uint64_t has = share ? share->pieces : 0;
    snprintf(who, sizeof who, "job %.128s on lane %u", job->name, lane->id);
    return limits_check(&job->tenant->limits, LIMIT_JOB_MEMORY, who,
                        lane_bytes(lane, has, has * job->workers), more, err);
}

static int check_lane(struct job *job, struct lane *lane, struct err *err)
{
    char who[192];
    snprintf(who, sizeof who, "lane %u, for job %.128s", lane->id, job->name);
    uint64_t used = lane_bytes(lane, lane->pieces, lane->ranks);
    uint64_t more = lane_bytes(lane, lane->planned, (uint64_t)lane->planned * job->workers);
    int error = check_job_on_lane(job, lane, more, err);
    if (error < 0)
        return error;
    error = limits_check(&job->service->options->limits, LIMIT_LANE_MEMORY, who, used, more, err);
    if (error < 0 && err)
        err->code = -ENOSPC;
    return error < 0 ? -ENOSPC : 0;
}

int quota_check_lanes(struct job *job, struct tensor *const *tensors, size_t count, struct err *err)
{
    int error = 0;
    for (size_t t = 0; t < count; t++)
        for (size_t i = 0; i < tensors[t]->pieces_count; i++)
            tensors[t]->pieces[i].lane->planned++;
    for (size_t t = 0; t < count; t++)
        for (size_t i = 0; i < tensors[t]->pieces_count; i++) {
            struct lane *lane = tensors[t]->pieces[i].lane;
            if (lane->planned > 0 && error == 0)
                error = check_lane(job, lane, err);
            lane->planned = 0;
        }
    return error;
}
