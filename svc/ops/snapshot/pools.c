/* Copies sites, and jobs of pools, from a message. A copy is one block of memory. */
#include "svc/ops/snapshot/pools.h"

#include <errno.h>
#include <stdlib.h>

#define WIRE(type) Gradpool__Wire__##type

static struct view_site pools_view_site(const WIRE(SiteView) * site)
{
    return (struct view_site){.site = site->site,
                              .slots = site->slots,
                              .held = site->held,
                              .leaving = site->leaving,
                              .pools = site->pools,
                              .waiting = site->waiting,
                              .grown = site->grown,
                              .shrunk = site->shrunk};
}

struct view_pool_job pools_view_job(const WIRE(PoolJobView) * job)
{
    return (struct view_pool_job){.tenant = job->tenant,
                                  .job = job->job,
                                  .site = job->site,
                                  .state = job->state,
                                  .decision = job->decision,
                                  .workers = job->workers,
                                  .leaving = job->leaving,
                                  .workers_min = job->workers_min,
                                  .workers_max = job->workers_max};
}

int pools_view(const WIRE(JobsReply) * reply, struct view_pools **ret_pools)
{
    size_t most = reply->n_jobs + reply->n_queued;
    *ret_pools = NULL;
    if (reply->n_sites == 0)
        return 0;
    struct view_pools *pools = calloc(1, sizeof *pools + reply->n_sites * sizeof *pools->sites +
                                             most * sizeof *pools->jobs);
    if (!pools)
        return -ENOMEM;
    pools->sites = (struct view_site *)(pools + 1);
    pools->jobs = (struct view_pool_job *)(pools->sites + reply->n_sites);
    for (size_t i = 0; i < reply->n_sites; i++)
        pools->sites[pools->sites_count++] = pools_view_site(reply->sites[i]);
    for (size_t i = 0; i < reply->n_jobs; i++)
        if (reply->jobs[i]->pool)
            pools->jobs[pools->jobs_count++] = pools_view_job(reply->jobs[i]->pool);
    for (size_t i = 0; i < reply->n_queued; i++)
        pools->jobs[pools->jobs_count++] = pools_view_job(reply->queued[i]);
    *ret_pools = pools;
    return 0;
}
