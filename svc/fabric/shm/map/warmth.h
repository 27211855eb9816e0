/* Accesses mapped pages of a lent region on the mapper's thread, before a lane does. On a virtual
 * machine, a process's first access to a page costs 17 us even if the page is mapped: the
 * hypervisor has its own page tables. Records do not wait for this access, because a lane can
 * already use a mapped page (S16). */
#ifndef GRADPOOL_FABRIC_SHM_MAP_WARMTH_H
#define GRADPOOL_FABRIC_SHM_MAP_WARMTH_H

#include "svc/base/list.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct fabric_group;
struct shm_lent;

/* Only the mapper's thread uses the fields, except the atomic ones. */
struct shm_warmth {
    struct list link; /* node in the list of regions with pages that were not accessed yet */
    const struct shm_lent *lent;
    uint64_t cold, cold_end;   /* mapped pages that are still to be accessed */
    uint64_t used_ns;          /* CPU time used since the last pages were mapped */
    _Atomic uint64_t spent_ns; /* CPU time that was not charged to a job yet */
    /* the job and its tenant have not used up their share of the mapper's time */
    atomic_bool may;
    atomic_bool is_warm; /* all mapped pages were accessed, or this host needs no such access */
};

/* Creates the state. Returns NULL if memory is missing. */
struct shm_warmth *shm_warmth_create(const struct shm_lent *lent);
void shm_warmth_destroy(struct shm_warmth *w);
/* Adds pages that were mapped. */
void shm_warmth_note(struct shm_warmth *w, uint64_t first, uint64_t end);
/* Called by the lane. shm_warmth_allow() sets whether the job and its tenant may use more of the
 * thread's time. shm_warmth_charge() charges the time used to both. A job or a tenant may use one
 * second without a limit, and afterwards half of the thread's time. */
void shm_warmth_allow(struct shm_warmth *w, const struct fabric_group *group);
void shm_warmth_charge(struct shm_warmth *w, struct fabric_group *group);
/* Accesses pages for some milliseconds. Returns false if no page is left. A page that is missing
 * now is skipped. */
bool shm_warmth_work(struct shm_warmth *w);

#endif
