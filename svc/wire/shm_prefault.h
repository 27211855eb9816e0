/* Maps ahead what workers have lent to a lane. */
#ifndef GRADPOOL_WIRE_SHM_PREFAULT_H
#define GRADPOOL_WIRE_SHM_PREFAULT_H

#include "svc/wire/shm_conn.h"

/* A region has been mapped, or is about to be unmapped. */
void shm_prefault_add(struct shm_fabric *f, struct shm_region *region);
void shm_prefault_remove(struct shm_fabric *f, struct shm_region *region);
/* A little of one region; false: there is nothing left to do. */
bool shm_prefault_some(struct shm_fabric *f);

#endif
