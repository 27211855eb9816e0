/* Ring of ended jobs. Owns copies of the jobs' names. The rates, shares of cores and predictions of
 * an ended job are unknown. */
#include "svc/ops/snapshot/ended.h"

#include <math.h>
#include <stdio.h>

static void put(struct ended *e, const struct view_job *job, double at_s)
{
    struct ended_job *slot = &e->jobs[e->count++ % ENDED_JOBS_MAX];
    *slot = (struct ended_job){.at_s = at_s};
    snprintf(slot->tenant, sizeof slot->tenant, "%s", job->tenant);
    snprintf(slot->job, sizeof slot->job, "%s", job->job);
    snprintf(slot->state, sizeof slot->state, "%s", job->state);
    slot->view = (struct view_job){.tenant = slot->tenant,
                                   .job = slot->job,
                                   .state = slot->state,
                                   .job_id = job->job_id,
                                   .workers = job->workers,
                                   .use = job->use,
                                   .period_ns = job->period_ns,
                                   .alone_period_ns = job->alone_period_ns,
                                   .lane_ns = job->lane_ns,
                                   .loss_ppm = job->loss_ppm,
                                   .shared_loss_ppm = job->shared_loss_ppm,
                                   .loss_limit_ppm = job->loss_limit_ppm,
                                   .rate = {NAN, NAN, NAN, NAN, NAN},
                                   .cores_allocated = NAN};
}

void ended_look(struct ended *e, const struct snapshot *before, const struct snapshot *now)
{
    for (size_t i = 0; before && i < before->jobs.jobs_count; i++) {
        const struct view_job *job = &before->jobs.jobs[i];
        if (!snapshot_job(now, job->job_id))
            put(e, job, (double)now->status.uptime_ns / 1e9);
    }
}

const struct ended_job *ended_at(const struct ended *e, size_t index, double now_s)
{
    if (index >= e->count || index >= ENDED_JOBS_MAX)
        return NULL;
    const struct ended_job *job = &e->jobs[(e->count - 1 - index) % ENDED_JOBS_MAX];
    return now_s - job->at_s <= ENDED_KEPT_S ? job : NULL;
}

bool ended_knows(const struct ended *e, const struct figure *figure, double now_s)
{
    const struct ended_job *job;
    for (size_t i = 0; (job = ended_at(e, i, now_s)); i++)
        if (!isnan(figure->value(&job->view)))
            return true;
    return false;
}
