/* The thread that maps what workers lend to a lane, and unmaps it: a lane never waits for the
 * kernel's page tables. A region's slices take turns with those of others. */
#ifndef GRADPOOL_WIRE_SHM_MAPPER_H
#define GRADPOOL_WIRE_SHM_MAPPER_H

#include "svc/wire/shm_lent.h"

#include <pthread.h>

struct shm_mapper {
    pthread_mutex_t lock;
    pthread_cond_t has_work;
    struct list queue; /* of struct shm_lent, under the lock */
    bool is_stopping, is_running;
    int news_fd; /* eventfd, readable with each region that is done */
    pthread_t thread;
};

/* -EMFILE, -EAGAIN, -ENOMEM. */
int shm_mapper_start(struct shm_mapper *mapper);
/* Also one that was never started, if `is_running` is false. Unmaps what is over first. */
void shm_mapper_stop(struct shm_mapper *mapper);

/* The lane's side: to be mapped as far as `offset`, `wanted` and `ahead` say. Then is_done is set,
 * and news_fd has an edge. */
void shm_mapper_give(struct shm_mapper *mapper, struct shm_lent *lent);
static inline bool shm_lent_is_done(const struct shm_lent *lent)
{
    return atomic_load_explicit(&lent->is_done, memory_order_acquire);
}
/* Takes it over, also while it is being mapped: unmaps and frees it. */
void shm_mapper_end(struct shm_mapper *mapper, struct shm_lent *lent);

#endif
