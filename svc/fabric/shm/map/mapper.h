/* Thread that maps and unmaps the regions that workers lend to a lane, so that the lane never waits
 * for the kernel's page tables. The thread maps a part of one region, then a part of the next
 * region. A region whose `due_ns` is in the future waits (S15). */
#ifndef GRADPOOL_FABRIC_SHM_MAP_MAPPER_H
#define GRADPOOL_FABRIC_SHM_MAP_MAPPER_H

#include "svc/fabric/shm/map/lent.h"
#include "svc/fabric/shm/map/toll.h"

struct shm_mapper;

/* Starts the thread. Returns 0, -EMFILE, -EAGAIN or -ENOMEM. */
int shm_mapper_create(struct shm_mapper **ret_mapper);
/* Unmaps the regions that have ended, then ends the thread. NULL is allowed. */
void shm_mapper_destroy(struct shm_mapper *mapper);
/* Returns an eventfd that becomes readable after each mapped region. */
int shm_mapper_news_fd(const struct shm_mapper *mapper);

/* Returns the tolls of all jobs with connections. A toll counts the time of unmapping that is not
 * charged to the job yet (toll.h). For the lane's thread only. NULL: there is no mapper. */
struct list *shm_mapper_tolls(struct shm_mapper *mapper);
/* Returns a toll with time that is not charged to its job yet, and writes this time; NULL: there is
 * no such toll. */
const struct shm_toll *shm_mapper_next_toll(struct shm_mapper *mapper, uint64_t *ret_ns);
/* Passes the region to the mapper, which maps `wanted` bytes from `offset` on, and then pages in
 * advance from `ahead` on. When the work has ended, shm_lent_is_done() returns true, and the
 * eventfd is signaled. */
void shm_mapper_give(struct shm_mapper *mapper, struct shm_lent *lent);
static inline bool shm_lent_is_done(const struct shm_lent *lent)
{
    return atomic_load_explicit(&lent->is_done, memory_order_acquire);
}
/* Unmaps and frees the region, even if it is being mapped. The mapper owns it from now on. NULL is
 * allowed. */
void shm_mapper_end(struct shm_mapper *mapper, struct shm_lent *lent);

#endif
