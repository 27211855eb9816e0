/* Reads routes of tables. */
#include "client/lib/table/route.h"

#include "svc/wire/table/record_rows.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

static uint64_t route_pair(const struct shard_route *shard)
{
    return (uint64_t)shard->lane << 32 | shard->group;
}

static int route_compare_pairs(const void *a, const void *b)
{
    uint64_t first = *(const uint64_t *)a, second = *(const uint64_t *)b;
    return (first > second) - (first < second);
}

/* Writes the sorted lanes and groups, each pair once, and for each shard the index of its pair. */
static int route_find_places(struct table_route *route, uint32_t shards)
{
    uint64_t *pairs = calloc(shards, sizeof *pairs);
    size_t count = 0;
    if (!pairs)
        return -ENOMEM;
    for (uint32_t i = 0; i < shards; i++)
        pairs[i] = route_pair(&route->shards[i]);
    qsort(pairs, shards, sizeof *pairs, route_compare_pairs);
    for (uint32_t i = 0; i < shards; i++)
        if (count == 0 || pairs[i] != pairs[count - 1])
            pairs[count++] = pairs[i];
    for (size_t i = 0; i < count; i++) {
        route->lanes[i] = (uint32_t)(pairs[i] >> 32);
        route->groups[i] = (uint32_t)pairs[i];
    }
    route->lanes_count = (uint32_t)count;
    for (uint32_t i = 0; i < shards; i++) {
        const uint64_t pair = route_pair(&route->shards[i]);
        const uint64_t *found = bsearch(&pair, pairs, count, sizeof pair, route_compare_pairs);
        route->shards[i].place = (uint32_t)(found - pairs);
    }
    free(pairs);
    return 0;
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
        if (message->shards[i]->group > ROW_GROUP_MAX)
            return err_set(err, -EBADMSG,
                           "table '%s': the coordinator's route of shard %u has an unknown group; "
                           "install the same version of gradpool on both hosts",
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
                                .lanes = calloc(shards, sizeof *route.lanes),
                                .groups = calloc(shards, sizeof *route.groups)};
    bool has_memory = route.shards && route.lanes && route.groups;
    for (uint32_t i = 0; has_memory && i < shards; i++)
        route.shards[i] = (struct shard_route){.lane = message->shards[i]->lane,
                                               .epoch = message->shards[i]->epoch,
                                               .lost_epoch = message->shards[i]->lost_epoch,
                                               .group = message->shards[i]->group};
    if (!has_memory || route_find_places(&route, shards) < 0) {
        table_route_fini(&route);
        return err_set(err, -ENOMEM,
                       "table '%s': this process has no memory for the route of %u shards; raise "
                       "its memory limit",
                       table, shards);
    }
    table_route_fini(ret_route);
    *ret_route = route;
    return 0;
}

void table_route_change(struct table_route *route, const Gradpool__Wire__TableRoute *message)
{
    uint32_t shards = table_route_shards(route);
    for (uint32_t i = 0; i < shards && i < message->n_shards; i++) {
        const Gradpool__Wire__ShardRoute *said = message->shards[i];
        struct shard_route *shard = &route->shards[i];
        if (said->lane == 0 || said->epoch <= shard->epoch || said->group > ROW_GROUP_MAX)
            continue;
        shard->lane = route->lanes[shard->place] = said->lane;
        shard->group = route->groups[shard->place] = said->group;
        shard->epoch = said->epoch;
        shard->lost_epoch = said->lost_epoch;
    }
}

void table_route_fini(struct table_route *route)
{
    free(route->shards);
    free(route->lanes);
    free(route->groups);
    *route = (struct table_route){0};
}
