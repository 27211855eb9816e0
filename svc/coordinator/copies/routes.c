/* Sends the routes of tables after a promotion. A worker that already has a route ignores the
 * message. */
#include "svc/base/cleanup.h"
#include "svc/coordinator/copies/internal.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/session/session.h"

#include <stdlib.h>

static bool table_was_promoted(const struct job_table *table)
{
    table_each_shard(shard, table) if (shard->group > 0) return true;
    return false;
}

static bool job_was_promoted(const struct job *job)
{
    job_each_table(table, job) if (!table->failure && table_was_promoted(table)) return true;
    return false;
}

static size_t tables_routes(const struct job *job, WIRE(TableRoute) * *ret_routes)
{
    size_t count = 0;
    job_each_table(table, job)
    {
        if (!table->failure)
            ret_routes[count] = job_table_route(table);
        count += !table->failure && ret_routes[count];
    }
    return count;
}

/* The routes of all tables are in one message, because a worker sends its open requests of all
 * tables to the new lanes at the same time. */
void tables_send_routes(struct job *job, const struct session *to)
{
    _cleanup_free_ WIRE(TableRoute) **routes =
        job_was_promoted(job) ? calloc(job->index->tables.count, sizeof *routes) : NULL;
    size_t count = routes ? tables_routes(job, routes) : 0;
    WIRE(RouteChange)
    change = MESSAGE_PART(RouteChange, route_change, .tables = routes, .n_tables = count);
    envelope message = ENVELOPE(0, ROUTE_CHANGE, route_change, &change);
    if (count > 0 && !to)
        jobs_broadcast(job, NULL, &message);
    else if (count > 0 && to->peer)
        peer_send(to->peer, &message);
    for (size_t i = 0; i < count; i++)
        free(routes[i]);
}
