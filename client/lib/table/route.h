/* Lanes of the shards of a table, from the coordinator's TableRoute. */
#ifndef GRADPOOL_CLIENT_TABLE_ROUTE_H
#define GRADPOOL_CLIENT_TABLE_ROUTE_H

#include "svc/channel/channel.h"
#include "svc/wire/table/record_rows.h"

#include <stdint.h>

struct shard_route {
    uint32_t lane, epoch, lost_epoch;
    uint32_t group; /* group of the table's number on the lane (record_rows.h) */
    uint32_t place; /* index of lane and group in `lanes` and `groups` */
};

/* A zeroed route has no shards. */
struct table_route {
    uint32_t table;
    uint64_t salt;
    uint32_t shard_bits; /* the table has 2^shard_bits shards */
    struct shard_route *shards;
    /* lane and group of all shards: each pair once, in ascending order if the route was read from a
     * message */
    uint32_t *lanes;
    uint32_t *groups; /* NULL: all groups are 0 */
    uint32_t lanes_count;
};

/* Returns the number of the table in records for the lane at a place. */
static inline uint32_t table_route_number(const struct table_route *route, uint32_t place)
{
    return row_table_id(route->table, route->groups ? route->groups[place] : 0);
}

/* Reads the route of a table that was declared with `shards` shards, and frees the former content
 * of `ret_route`. -EBADMSG, with a text: the message has another number of shards, or a shard
 * without an epoch; -ENOMEM. After an error `ret_route` is unchanged. */
int table_route_read(const Gradpool__Wire__TableRoute *message, const char *table, uint32_t shards,
                     struct table_route *ret_route, struct err *err);
/* Applies a newer route of this table after a promotion. A shard keeps its lane if the route names
 * no lane for the shard, or an epoch that is not newer. The index of each place stays. */
void table_route_change(struct table_route *route, const Gradpool__Wire__TableRoute *message);
void table_route_fini(struct table_route *route);

static inline uint32_t table_route_shards(const struct table_route *route)
{
    return route->shards ? UINT32_C(1) << route->shard_bits : 0;
}

#endif
