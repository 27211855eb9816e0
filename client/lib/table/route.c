/* Reads routes of tables. */
#include "client/lib/table/route.h"

#include "svc/wire/table/record_rows.h"

#include <errno.h>
#include <stdlib.h>

static int route_compare_lanes(const void *a, const void *b)
{
    uint32_t first = *(const uint32_t *)a, second = *(const uint32_t *)b;
    return (first > second) - (first < second);
}

/* Writes each lane once, and the index of each shard's lane. */
static void route_find_lanes(struct table_route *route, uint32_t shards)
{
    for (uint32_t i = 0; i < shards; i++)
        route->lanes[i] = route->shards[i].lane;
    qsort(route->lanes, shards, sizeof *route->lanes, route_compare_lanes);
    for (uint32_t i = 0; i < shards; i++) {
        if (route->lanes_count == 0 || route->lanes[i] != route->lanes[route->lanes_count - 1])
            route->lanes[route->lanes_count++] = route->lanes[i];
    }
    for (uint32_t i = 0; i < shards; i++) {
        const uint32_t *lane = bsearch(&route->shards[i].lane, route->lanes, route->lanes_count,
                                       sizeof *route->lanes, route_compare_lanes);
        route->shards[i].place = (uint32_t)(lane - route->lanes);
    }
}

static int route_check(const Gradpool__Wire__TableRoute *message, const char *table,
                       uint32_t shards, struct err *err)
{
    if (message->n_shards != shards || shards == 0 || shards > RECORD_SHARDS_MAX ||
        (shards & (shards - 1)) != 0)
        return err_set(err, -EBADMSG,
                       "table '%s': the coordinator's route has %zu shards, the table has %u; "
                       "install the same version of gradpool on both hosts",
                       table, message->n_shards, shards);
    for (uint32_t i = 0; i < shards; i++) {
        if (message->shards[i]->epoch == 0)
            return err_set(err, -EBADMSG,
                           "table '%s': the coordinator's route of shard %u has no epoch; install "
                           "the same version of gradpool on both hosts",
                           table, i);
    }
    return 0;
}

int table_route_read(const Gradpool__Wire__TableRoute *message, const char *table, uint32_t shards,
                     struct table_route *ret_route, struct err *err)
{
    int error = route_check(message, table, shards, err);
    if (error < 0)
        return error;
    struct table_route route = {.table = message->table,
                                .salt = message->salt,
                                .shard_bits = (uint32_t)__builtin_ctz(shards),
                                .shards = calloc(shards, sizeof *route.shards),
                                .lanes = calloc(shards, sizeof *route.lanes)};
    if (!route.shards || !route.lanes) {
        table_route_fini(&route);
        return err_set(err, -ENOMEM,
                       "table '%s': this process has no memory for the route of %u shards; raise "
                       "its memory limit",
                       table, shards);
    }
    for (uint32_t i = 0; i < shards; i++)
        route.shards[i] = (struct shard_route){.lane = message->shards[i]->lane,
                                               .epoch = message->shards[i]->epoch,
                                               .lost_epoch = message->shards[i]->lost_epoch};
    route_find_lanes(&route, shards);
    table_route_fini(ret_route);
    *ret_route = route;
    return 0;
}

void table_route_fini(struct table_route *route)
{
    free(route->shards);
    free(route->lanes);
    *route = (struct table_route){0};
}
