/* Texts for sites and for jobs of pools. `gradpool jobs` and `gradpool explain` use the same
 * texts. */
#include "svc/ops/answer/pools.h"

#include "svc/base/text.h"
#include "svc/ops/answer/answer.h"
#include "svc/ops/answer/table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void pools_add_job(struct table *table, const struct view_pool_job *job)
{
    table_add(table, "%s", *job->tenant ? job->tenant : "-");
    table_add(table, "%s", job->job);
    table_add(table, "%s", job->site);
    table_add(table, "%s", job->state);
    table_add(table, "%u", job->workers);
    table_add(table, "%u", job->leaving);
    table_add(table, "%u", job->workers_min);
    table_add(table, "%u", job->workers_max);
}

static int pools_print_jobs(const struct view_pools *pools, FILE *out)
{
    static const char *const titles[] = {"TENANT",   "JOB",    "SITE",  "STATE", ">WORKERS",
                                         ">LEAVING", ">LEAST", ">MOST", NULL};
    struct table table;
    table_init(&table, titles);
    for (size_t i = 0; i < pools->jobs_count; i++)
        pools_add_job(&table, &pools->jobs[i]);
    return table_print(&table, out);
}

static int pools_print_sites(const struct view_pools *pools, FILE *out)
{
    static const char *const titles[] = {"SITE",   ">SLOTS",   ">HELD",  ">LEAVING", ">FREE",
                                         ">POOLS", ">WAITING", ">GROWN", ">SHRUNK",  NULL};
    struct table table;
    table_init(&table, titles);
    for (size_t i = 0; i < pools->sites_count; i++) {
        const struct view_site *site = &pools->sites[i];
        table_add(&table, "%s", site->site);
        table_add(&table, "%u", site->slots);
        table_add(&table, "%u", site->held);
        table_add(&table, "%u", site->leaving);
        table_add(&table, "%u", site_free(site));
        table_add(&table, "%u", site->pools);
        table_add(&table, "%u", site->waiting);
        table_add(&table, "%" PRIu64, site->grown);
        table_add(&table, "%" PRIu64, site->shrunk);
    }
    return table_print(&table, out);
}

int pools_print(const struct view_pools *pools, FILE *out)
{
    int error = 0;
    if (pools->jobs_count > 0) {
        error = pools_print_jobs(pools, out);
        fputc('\n', out);
    }
    return error ?: pools_print_sites(pools, out);
}

/* Prints the decision without control bytes, because the decision may contain a text that a pool
 * has sent. */
void pools_print_job(const struct view_pool_job *job, FILE *out)
{
    char *tamed = strdup(job->decision);
    if (!tamed)
        return;
    text_disarm(tamed);
    fprintf(out, "site %s: %u worker%s of %u to %u, %s; %s\n", job->site, job->workers,
            text_plural(job->workers), job->workers_min, job->workers_max, job->state, tamed);
    free(tamed);
}

int ops_pool_jobs_text(const struct view_pools *pools, FILE *out)
{
    for (size_t i = 0; i < pools->jobs_count; i++)
        pools_print_job(&pools->jobs[i], out);
    return ferror(out) ? -EIO : 0;
}

json_t *pools_job_json(const struct view_pool_job *job, int *error)
{
    json_t *o = json_object();
    JSON_PUT(o, job, error, tenant, job, site, state, workers, leaving);
    JSON_PUT(o, job, error, workers_min, workers_max, decision);
    return o;
}

static json_t *pools_site_json(const struct view_site *site, int *error)
{
    json_t *o = json_object();
    JSON_PUT(o, site, error, site, slots, held, leaving);
    JSON_PUT(o, site, error, pools, waiting, grown, shrunk);
    return o;
}

void pools_put(json_t *o, const struct view_pools *pools, int *error)
{
    json_t *sites = json_array(), *jobs = json_array();
    for (size_t i = 0; i < pools->sites_count; i++)
        json_put_last(sites, pools_site_json(&pools->sites[i], error), error);
    for (size_t i = 0; i < pools->jobs_count; i++)
        json_put_last(jobs, pools_job_json(&pools->jobs[i], error), error);
    json_put(o, "sites", sites, error);
    json_put(o, "pool_jobs", jobs, error);
}
