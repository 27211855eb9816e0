/* A toll counts the time that the mapper's thread has spent on unmapping a job's memory. The memory
 * may be unmapped after the end of the connection or of the job. S15 of
 * svc/fabric/shm/README.md. */
#ifndef GRADPOOL_FABRIC_SHM_MAP_TOLL_H
#define GRADPOOL_FABRIC_SHM_MAP_TOLL_H

#include "svc/base/list.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct fabric_group;

struct shm_toll {
    /* node in shm_fabric.tolls while connections use the toll; only the lane's thread uses this
     * field */
    struct list link;
    /* group of a job; after the last connection of the group has left, the group may be freed, and
     * the lane does not use this pointer */
    struct fabric_group *group;
    unsigned conns;
    atomic_uint users; /* number of connections and of mapped regions that use the toll */
    _Atomic uint64_t spent_ns;
};

/* Adds a connection to the toll of its group. If no memory for a toll is left, the job is not
 * charged for unmapping. */
void shm_toll_join(struct list *tolls, struct fabric_group *group);
/* Removes a connection from the toll of its group. */
void shm_toll_leave(struct list *tolls, const struct fabric_group *group);
/* Begins the use of the group's toll by mapped memory. Returns the toll, or NULL if there is
 * none. */
struct shm_toll *shm_toll_share(struct list *tolls, const struct fabric_group *group);
/* Adds the time of unmapping to the toll; this memory then no longer uses the toll. Any thread may
 * call this function. NULL is allowed. */
void shm_toll_pay(struct shm_toll *toll, uint64_t spent_ns);
/* Returns a toll with time, and resets this time; NULL: there is none. */
struct shm_toll *shm_toll_next(struct list *tolls, uint64_t *ret_ns);

#endif
