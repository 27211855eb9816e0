/* Creation, loss and end of pools. Owns struct slots_pool. */
#include "svc/base/log.h"
#include "svc/coordinator/slots/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void slots_pool_missing(struct timer *timer)
{
    struct slots_pool *pool = container_of(timer, struct slots_pool, away);
    pool->is_held = pool->is_missing = true;
    log_warn("the pool on %s (pid %u) has been gone for %u s: its jobs train on at their size; "
             "start the pool again in its folder",
             pool->node, pool->pid, (unsigned)(SLOTS_AWAY_NS / NS_PER_S));
    slots_look_soon(pool->service);
}

struct slots_pool *slots_pool_create(struct slots_site *site, struct tenant *tenant,
                                     uint64_t number, const char *node, uint32_t pid)
{
    struct slots_pool *pool = calloc(1, sizeof *pool);
    if (pool)
        pool->node = strdup(node);
    if (!pool || !pool->node) {
        free(pool);
        return NULL;
    }
    pool->service = site->service;
    pool->tenant = tenant;
    pool->site = site;
    pool->number = number;
    pool->pid = pid;
    timer_init(&pool->away, slots_pool_missing);
    list_append(&site->service->works->slots->pools, &pool->link);
    return pool;
}

void slots_pool_free(struct slots_pool *pool)
{
    timer_stop(&pool->away);
    list_remove(&pool->link);
    free(pool->node);
    free(pool);
}

void slots_pool_await(struct slots_pool *pool)
{
    pool->away_ns = clock_now_ns();
    timer_start(pool->service->loop, &pool->away, pool->away_ns + SLOTS_AWAY_NS);
}

bool slots_pool_has_jobs(const struct slots_pool *pool)
{
    list_for_each_entry (const struct slots_job, job, &pool->service->works->slots->jobs, link)
        if (job->pool == pool)
            return true;
    return false;
}

void slots_pool_check(struct slots_pool *pool)
{
    if (!pool->peer && !slots_pool_has_jobs(pool))
        slots_pool_free(pool);
}

const char *slots_pool_name(const struct slots_pool *pool, char *buffer, size_t buffer_bytes)
{
    snprintf(buffer, buffer_bytes, "the pool on %.200s (pid %u)", pool->node, pool->pid);
    return buffer;
}
