/* Pages of a lent region that are mapped, touched by the mapper's thread before a lane does: where
 * a hypervisor keeps page tables of its own, the first access of a process to a page costs 17 us,
 * mapped or not. No record waits for that, and what is mapped can be used cold (S16). */
#ifndef GRADPOOL_FABRIC_SHM_MAP_WARMTH_H
#define GRADPOOL_FABRIC_SHM_MAP_WARMTH_H

#include "svc/base/list.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct fabric_group;
struct shm_lent;

/* All but the atomic fields belong to the mapper's thread. */
struct shm_warmth {
    struct list link; /* in the list of regions with cold pages */
    const struct shm_lent *lent;
    uint64_t cold, cold_end;   /* known pages from `cold` to `cold_end` are to be touched */
    uint64_t used_ns;          /* CPU time since pages became known last */
    _Atomic uint64_t spent_ns; /* CPU time that no job was charged for yet */
    atomic_bool may;           /* the job and its tenant have time of the mapper left for that */
    atomic_bool is_warm;       /* all known pages were touched, or are not to be */
};

/* NULL: no memory. */
struct shm_warmth *shm_warmth_create(const struct shm_lent *lent);
void shm_warmth_destroy(struct shm_warmth *w);
/* These pages have become known. */
void shm_warmth_note(struct shm_warmth *w, uint64_t first, uint64_t end);
/* The lane's part: whether the job and its tenant have time left, and their bill for what was done.
 * A job and a tenant may have a second on end, and half of the time then. */
void shm_warmth_allow(struct shm_warmth *w, const struct fabric_group *group);
void shm_warmth_charge(struct shm_warmth *w, struct fabric_group *group);
/* Touches some pages, for some milliseconds. False: no known page is cold. Pages that are absent by
 * now are left out. */
bool shm_warmth_work(struct shm_warmth *w);

#endif
