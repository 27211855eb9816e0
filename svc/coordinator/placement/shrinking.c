/* Advises operators: if a new job fits on no lane, the log names a running job that could release a
 * worker, so that the new job fits. packer/growth/elastic.h computes the advice; this file writes
 * its text. No job changes, because this service neither starts nor ends workers (RULES.md: K49;
 * packer/README.md: E1 to E5). */
#include "svc/coordinator/placement/shrinking.h"

#include "packer/growth/elastic.h"
#include "svc/base/cleanup.h"
#include "svc/base/log.h"
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/membership/membership.h"
#include "svc/coordinator/service.h"

#include <stdio.h>
#include <stdlib.h>

static uint32_t lanes_of(const struct job *job)
{
    uint32_t lanes = 0;
    for (size_t i = 0; i < job->shares_count; i++)
        lanes += job->shares[i].pieces > 0;
    return lanes;
}

static uint32_t tenant_number(const struct service *s, const struct tenant *tenant)
{
    uint32_t number = 0;
    list_for_each (node, &s->door->tenants) {
        if (list_entry(node, struct tenant, link) == tenant)
            break;
        number++;
    }
    return number;
}

/* Describes a job to the packer by measurements with its present workers and lanes. Lane time grows
 * with the number of workers. The rest of the period is work that is divided among the workers. */
static struct elastic_job describe(const struct job *job)
{
    struct profile_times known = profile_known(job->profile);
    uint32_t workers = members_count(job), lanes = lanes_of(job);
    double lane_s = (double)known.lanes_ns / NS_PER_S / (lanes ? lanes : 1);
    double rest_s = (double)known.period_ns / NS_PER_S - lane_s;
    return (struct elastic_job){
        .id = job->id,
        .tenant = tenant_number(job->service, job->tenant),
        .is_probing = known.period_ns == 0,
        .has = {workers, lanes},
        .least = {1, 1},
        .speed = {.work = rest_s > 0 ? rest_s * workers : 0, .share = lane_s * lanes / workers},
        .held_until_ns = job->ranks->changed_ns ? job->ranks->changed_ns + ELASTIC_HOLD_NS : 0};
}

static size_t gather(const struct job *arriving, struct elastic_job *jobs)
{
    size_t count = 0;
    list_for_each_entry (const struct job, job, &arriving->service->jobs, link)
        if (job != arriving && job->terms->is_elastic && !job->failure && members_count(job) > 0)
            jobs[count++] = describe(job);
    return count;
}

static const char *bundle_text(struct elastic_slots by)
{
    return by.servers ? "a worker and a lane" : "a worker";
}

static void say(struct job *arriving, const struct elastic_job *jobs,
                const struct elastic_change *change)
{
    const struct job *job = jobs_find_id(arriving->service, change->job);
    char prefix[TENANT_PREFIX_BYTES], text[384];
    while (jobs->id != change->job)
        jobs++;
    double now = elastic_rounds_per_s(&jobs->speed, jobs->has.workers + change->by.workers,
                                      jobs->has.servers + change->by.servers);
    double then = elastic_rounds_per_s(&jobs->speed, jobs->has.workers, jobs->has.servers);
    snprintf(
        text, sizeof text,
        "job %.100s does not fit: job %s%.100s would release %s at the least loss, %.2f rounds a "
        "second instead of %.2f; the service does not do this itself, so resize that job",
        arriving->name, tenant_prefix(job->tenant, prefix), job->name, bundle_text(change->by),
        then, now);
    log_info("%s", text);
    events_note(arriving->service->events, "shrink", "%s", text);
}

void shrinking_say(struct job *arriving)
{
    struct elastic_slots none = {0, 0};
    struct elastic_change change;
    size_t count = 0;
    list_for_each (node, &arriving->service->jobs)
        count++;
    _cleanup_free_ struct elastic_job *jobs = calloc(count + 1, sizeof *jobs);
    if (!jobs || arriving->ranks->told_shrinking || arriving->terms->is_trial)
        return;
    arriving->ranks->told_shrinking = true;
    count = gather(arriving, jobs);
    if (elastic_make_room(jobs, count, &none, (struct elastic_slots){.workers = 1}, clock_now_ns(),
                          &change, 1) == 1)
        say(arriving, jobs, &change);
    else if (count > 0)
        log_info("job %.100s does not fit, and none of %zu elastic jobs can give up a worker: each "
                 "has one worker, is not measured, or was changed a short time ago",
                 arriving->name, count);
}
