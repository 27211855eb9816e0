/* Finds sites, jobs and pools. Owns no state. */
#include "svc/coordinator/slots/internal.h"

#include <string.h>

struct slots_site *slots_find_site(const struct service *s, const char *name)
{
    list_for_each_entry (struct slots_site, site, &s->works->slots->sites, link)
        if (strcmp(site->name, name) == 0)
            return site;
    return NULL;
}

struct slots_job *slots_find_job(const struct service *s, const struct tenant *tenant,
                                 const char *name)
{
    list_for_each_entry (struct slots_job, job, &s->works->slots->jobs, link)
        if (job->pool->tenant == tenant && strcmp(job->name, name) == 0)
            return job;
    return NULL;
}

struct job *slots_training(const struct slots_job *job)
{
    return jobs_find(job->pool->service, job->pool->tenant, job->name);
}

uint64_t slots_next_incarnation(struct service *s)
{
    return s->numbers->incarnation << 32 | ++s->works->slots->incarnations;
}

struct slots_pool *slots_pool_find(const struct service *s, const struct tenant *tenant,
                                   uint64_t number)
{
    list_for_each_entry (struct slots_pool, pool, &s->works->slots->pools, link)
        if (pool->tenant == tenant && pool->number == number)
            return pool;
    return NULL;
}

struct slots_pool *slots_pool_of(const struct peer *p)
{
    list_for_each_entry (struct slots_pool, pool, &p->service->works->slots->pools, link)
        if (pool->peer == p)
            return pool;
    return NULL;
}

void slots_look_soon(struct service *s)
{
    if (!list_is_empty(&s->works->slots->jobs))
        timer_start(s->loop, &s->works->slots->look, clock_now_ns());
}
