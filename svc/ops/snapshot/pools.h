/* Sites, and jobs of pools: reads them from a message. */
#ifndef GRADPOOL_OPS_SNAPSHOT_POOLS_H
#define GRADPOOL_OPS_SNAPSHOT_POOLS_H

#include "svc/channel/channel.h"
#include "svc/view/view.h"

/* Reads sites and jobs of pools; NULL: the service has no site. Texts point to the message. The
 * caller frees the result with free(). Returns 0 or -ENOMEM. */
int pools_view(const Gradpool__Wire__JobsReply *reply, struct view_pools **ret_pools);
struct view_pool_job pools_view_job(const Gradpool__Wire__PoolJobView *job);

/* Returns the number of slots without a worker, or 0. There may be more workers than slots, if the
 * service was restarted with fewer slots. */
static inline uint32_t site_free(const struct view_site *site)
{
    uint32_t used = site->held + site->leaving;
    return site->slots > used ? site->slots - used : 0;
}

#endif
