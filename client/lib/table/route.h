/* Lanes of the shards of a table, from the coordinator's TableRoute. */
#ifndef GRADPOOL_CLIENT_TABLE_ROUTE_H
#define GRADPOOL_CLIENT_TABLE_ROUTE_H

#include "svc/channel/channel.h"

#include <stdint.h>

struct shard_route {
    uint32_t lane, epoch, lost_epoch;
    uint32_t place; /* index of the lane in `lanes` */
};

/* A zeroed route has no shards. */
struct table_route {
    uint32_t table;
    uint64_t salt;
    uint32_t shard_bits; /* the table has 2^shard_bits shards */
    struct shard_route *shards;
    uint32_t *lanes; /* lanes that own a shard, each once, ascending */
    uint32_t lanes_count;
};

/* Reads the route of a table that was declared with `shards` shards, and frees the former content
 * of `ret_route`. -EBADMSG, with a text: the message has another number of shards, or a shard
 * without an epoch; -ENOMEM. After an error `ret_route` is unchanged. */
int table_route_read(const Gradpool__Wire__TableRoute *message, const char *table, uint32_t shards,
                     struct table_route *ret_route, struct err *err);
void table_route_fini(struct table_route *route);

static inline uint32_t table_route_shards(const struct table_route *route)
{
    return route->shards ? UINT32_C(1) << route->shard_bits : 0;
}

#endif
