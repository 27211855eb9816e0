/* Metrics of sites: slots by state, and resizes of jobs by kind. Nothing is printed for a service
 * without a site. */
#include "svc/ops/web/metrics_pools.h"

#include "svc/ops/snapshot/pools.h"
#include "svc/ops/web/metrics_line.h"

#include <string.h>

static void pools_print_slots(const struct view_site *site, const char *state, uint32_t slots,
                              FILE *out)
{
    fputs("gradpool_worker_slots{", out);
    metrics_label(out, "site", site->site);
    fprintf(out, ",state=\"%s\"} %u\n", state, slots);
}

static void pools_print_resizes(const struct view_site *site, const char *kind, uint64_t resizes,
                                FILE *out)
{
    fputs("gradpool_resizes_total{", out);
    metrics_label(out, "site", site->site);
    fprintf(out, ",kind=\"%s\"} %llu\n", kind, (unsigned long long)resizes);
}

static void pools_print_job_states(const struct view_pools *pools, FILE *out)
{
    static const char *const states[] = {"waiting", "probing", "running", "resting", "ending"};
    metrics_family(out, "pool_jobs", "gauge", "Jobs whose workers a pool starts, by state.");
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        unsigned count = 0;
        for (size_t k = 0; k < pools->jobs_count; k++)
            count += strcmp(pools->jobs[k].state, states[i]) == 0;
        fprintf(out, "gradpool_pool_jobs{state=\"%s\"} %u\n", states[i], count);
    }
}

void metrics_print_pools(const struct snapshot *s, FILE *out)
{
    const struct view_pools *pools = s->jobs.pools;
    if (!pools)
        return;
    metrics_family(out, "worker_slots", "gauge", "Slots of a site for workers of pools.");
    for (size_t i = 0; i < pools->sites_count; i++) {
        pools_print_slots(&pools->sites[i], "held", pools->sites[i].held, out);
        pools_print_slots(&pools->sites[i], "leaving", pools->sites[i].leaving, out);
        pools_print_slots(&pools->sites[i], "free", site_free(&pools->sites[i]), out);
    }
    metrics_family(out, "resizes_total", "counter",
                   "Resizes of jobs by the scheduler, since the start of the coordinator.");
    for (size_t i = 0; i < pools->sites_count; i++) {
        pools_print_resizes(&pools->sites[i], "grow", pools->sites[i].grown, out);
        pools_print_resizes(&pools->sites[i], "shrink", pools->sites[i].shrunk, out);
    }
    pools_print_job_states(pools, out);
}
