/* A region that a worker lends, on the lane's side. The mapper's thread (mapper.h) maps it and sets
 * a bit for each mapped page. The mapper's thread owns the struct from shm_mapper_give() until the
 * work is done; otherwise the lane's thread owns it. */
#ifndef GRADPOOL_FABRIC_SHM_MAP_LENT_H
#define GRADPOOL_FABRIC_SHM_MAP_LENT_H

#include "svc/base/list.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SHM_LENT_WORD_PAGES 64

struct shm_record;
struct shm_looks;
struct shm_toll;
struct shm_warmth;

struct shm_lent {
    struct list link; /* node in the mapper's queue while pages are to be mapped */
    uint32_t id;      /* number that the worker has chosen */
    /* descriptor of the memory; -1: the region is mapped, and accesses to missing pages fail */
    int fd;
    void *base; /* NULL: not mapped yet */
    uint64_t bytes;
    /* an access to a missing page of this region raises SIGBUS and allocates nothing */
    bool fails;
    uint64_t *known; /* bit i: page i is mapped */
    /* all pages before this offset are mapped; a multiple of the page size, or the end */
    uint64_t known_end;
    _Atomic bool *poisoned;    /* flag of the connection */
    uint64_t offset, wanted;   /* range to be mapped */
    uint64_t ahead;            /* next offset at which existing pages are mapped early */
    struct shm_record *record; /* record that names the range and waits for it; NULL: none */
    /* result of mapping: 0; -EFAULT: a page of the range is missing; or an error of mmap() */
    int result;
    uint64_t due_ns;   /* time before which the region is not mapped */
    uint64_t spent_ns; /* mapper's time since shm_mapper_give() */
    /* is_given: the region waits to be mapped; is_over: the region waits to be unmapped; the
     * mapper's lock protects both flags */
    bool is_given, is_over;
    struct shm_warmth *warmth; /* see warmth.h */
    struct shm_toll *toll;     /* account for the time of unmapping; NULL: none */
    atomic_bool is_done;
    /* ranges that were checked for missing pages; used if accesses to missing pages do not fail */
    struct shm_looks *looks;
};

/* Creates the region, which owns `fd` after success. Returns 0 or -ENOMEM. */
int shm_lent_create(uint32_t id, int fd, uint64_t bytes, _Atomic bool *poisoned,
                    struct shm_lent **ret_lent);
/* Unmaps and frees the region, and adds the time of unmapping to the toll of its job (toll.h). NULL
 * is allowed. */
void shm_lent_destroy(struct shm_lent *lent);

/* Maps pages for a few milliseconds. Returns 0 if all work is done, -EAGAIN if more is left, or an
 * error. */
int shm_lent_work(struct shm_lent *lent);

/* Returns whether all pages of the range are known to be mapped. The range must be inside the
 * region. */
static inline bool shm_lent_knows_page(const struct shm_lent *lent, uint64_t page)
{
    return lent->known[page / SHM_LENT_WORD_PAGES] >> (page % SHM_LENT_WORD_PAGES) & 1;
}
bool shm_lent_knows_pages(const struct shm_lent *lent, uint64_t offset, uint64_t bytes);
static inline bool shm_lent_knows(const struct shm_lent *lent, uint64_t offset, uint64_t bytes)
{
    return offset + bytes <= lent->known_end || shm_lent_knows_pages(lent, offset, bytes);
}
/* Returns whether the pages of the range exist. Called directly before an access that would
 * otherwise allocate missing pages. The result is stored until `poll` changes. */
bool shm_lent_is_there(struct shm_lent *lent, uint64_t offset, uint64_t bytes, uint32_t poll);

#endif
