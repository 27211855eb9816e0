/* Messages between a pool and the coordinator, for svc/pool/site. */
#ifndef GRADPOOL_CLI_RUN_POOL_SITE_H
#define GRADPOOL_CLI_RUN_POOL_SITE_H

#include "svc/channel/channel.h"
#include "svc/pool/site/site.h"

#include <limits.h>

#define POOL_JOB_BYTES 128 /* with the zero byte */

/* An order with the name of its job. */
struct pool_order {
    char job[POOL_JOB_BYTES];
    struct site_order order;
};

/* Connection of the thread that exchanges orders and reports. */
struct pool_site {
    const char *endpoint;
    char node[HOST_NAME_MAX + 1];
    struct channel *channel; /* NULL: none */
    bool is_clearing;        /* an earlier job with the name of the pool's job is being ended */
    /* an order was dropped, because the list of orders is full or memory is missing */
    bool is_flooded;
    struct pool_order *orders;
    size_t count, room;
};

/* Functions with which svc/pool/site reaches the coordinator. Their `context` is a struct
 * pool_site. */
extern const struct site_calls pool_site_calls;

#endif
