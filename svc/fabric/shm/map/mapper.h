/* The thread that maps and unmaps the regions that workers lend to a lane: a lane never waits for
 * the kernel's page tables. A region's slices take turns with those of others; a region that is not
 * due yet waits (S15). */
#ifndef GRADPOOL_FABRIC_SHM_MAP_MAPPER_H
#define GRADPOOL_FABRIC_SHM_MAP_MAPPER_H

#include "svc/fabric/shm/map/lent.h"

struct shm_mapper;

/* Starts the thread. -EMFILE, -EAGAIN, -ENOMEM. */
int shm_mapper_create(struct shm_mapper **ret_mapper);
/* Unmaps the regions that are over, then ends the thread. NULL is fine. */
void shm_mapper_destroy(struct shm_mapper *mapper);
/* An eventfd with an edge for each region that is done. */
int shm_mapper_news_fd(const struct shm_mapper *mapper);

/* The lane hands a region over, to be mapped as far as its `offset`, `wanted` and `ahead` say. Then
 * is_done is set, and the eventfd has an edge. */
void shm_mapper_give(struct shm_mapper *mapper, struct shm_lent *lent);
static inline bool shm_lent_is_done(const struct shm_lent *lent)
{
    return atomic_load_explicit(&lent->is_done, memory_order_acquire);
}
/* Takes the region over, also while it is being mapped: unmaps and frees it. NULL is fine. */
void shm_mapper_end(struct shm_mapper *mapper, struct shm_lent *lent);

#endif
