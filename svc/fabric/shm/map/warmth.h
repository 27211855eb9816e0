/* Warms mapped pages of a lent region: the mapper's thread touches them before a lane does. Where a
 * hypervisor has page tables of its own, the first access of a process to a page costs 17 us, even
 * if the page is mapped. No record waits for warming, and a mapped page can be used cold (S16). */
#ifndef GRADPOOL_FABRIC_SHM_MAP_WARMTH_H
#define GRADPOOL_FABRIC_SHM_MAP_WARMTH_H

#include "svc/base/list.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct fabric_group;
struct shm_lent;

/* All fields belong to the mapper's thread, except the atomic ones. */
struct shm_warmth {
    struct list link; /* node in the list of regions that have cold pages */
    const struct shm_lent *lent;
    uint64_t cold, cold_end;   /* known pages from `cold` to `cold_end` are still to be touched */
    uint64_t used_ns;          /* CPU time used since pages last became known */
    _Atomic uint64_t spent_ns; /* CPU time that is not charged to a job yet */
    atomic_bool may;           /* the job and its tenant have some of the mapper's time left */
    atomic_bool is_warm;       /* all known pages were touched, or need not be */
};

/* Creates the state. NULL: no memory. */
struct shm_warmth *shm_warmth_create(const struct shm_lent *lent);
void shm_warmth_destroy(struct shm_warmth *w);
/* Adds pages that have become known. */
void shm_warmth_note(struct shm_warmth *w, uint64_t first, uint64_t end);
/* Called by the lane: sets whether the job and its tenant have time left, and charges them for what
 * was done. A job and a tenant may use a second without a pause, and half of the time
 * afterwards. */
void shm_warmth_allow(struct shm_warmth *w, const struct fabric_group *group);
void shm_warmth_charge(struct shm_warmth *w, struct fabric_group *group);
/* Touches some pages, for some milliseconds. False: no known page is cold. Pages that are missing
 * by now are skipped. */
bool shm_warmth_work(struct shm_warmth *w);

#endif
