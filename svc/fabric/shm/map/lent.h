/* A region that a worker lends, on the side of the lane. The mapper's thread (mapper.h) maps it,
 * with a bit for each page that is known to be mapped. The mapper's thread owns the struct from
 * shm_mapper_give() until the work is done; at all other times the lane's thread owns it. */
#ifndef GRADPOOL_FABRIC_SHM_MAP_LENT_H
#define GRADPOOL_FABRIC_SHM_MAP_LENT_H

#include "svc/base/list.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SHM_LENT_WORD_PAGES 64

struct shm_record;
struct shm_looks;
struct shm_warmth;

struct shm_lent {
    struct list link; /* node in the mapper's queue, while pages are to be mapped */
    uint32_t id;      /* number that the worker has chosen */
    int fd;           /* -1 after mapping, if missing pages fail */
    void *base;       /* NULL: not mapped yet */
    uint64_t bytes;
    bool fails;      /* a touch of a missing page fails and adds none */
    uint64_t *known; /* bit i: page i was mapped */
    /* all pages before this offset were mapped; a multiple of the page size, or the end */
    uint64_t known_end;
    _Atomic bool *poisoned;    /* flag of the connection */
    uint64_t offset, wanted;   /* range to be mapped */
    uint64_t ahead;            /* from this offset on, pages are mapped as far as they exist */
    struct shm_record *record; /* record that names these pages and waits for them; NULL: none */
    int result;                /* 0; -EFAULT: a wanted page is missing; or an error of mmap */
    uint64_t due_ns;           /* not mapped before this time */
    uint64_t spent_ns;         /* time of the mapper since the region was given to it */
    bool is_given, is_over;    /* protected by the mapper's lock: to be mapped; to be unmapped */
    struct shm_warmth *warmth; /* see warmth.h */
    atomic_bool is_done;
    /* checks for missing pages, for mappings where a touch of one does not fail */
    struct shm_looks *looks;
};

/* Creates the region. After success it owns `fd`. Returns 0 or -ENOMEM. */
int shm_lent_create(uint32_t id, int fd, uint64_t bytes, _Atomic bool *poisoned,
                    struct shm_lent **ret_lent);
/* Frees the region, and unmaps it. NULL is fine. */
void shm_lent_destroy(struct shm_lent *lent);

/* Does a part of the work that takes a few milliseconds. 0: all is done; -EAGAIN: work is left. */
int shm_lent_work(struct shm_lent *lent);

/* Returns whether all pages of the range are known to be mapped. The range must be in the
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
/* Returns whether the pages of the range exist. Called right before a touch if nothing else
 * prevents the touch from adding pages. The result is remembered until `poll` changes. */
bool shm_lent_is_there(struct shm_lent *lent, uint64_t offset, uint64_t bytes, uint32_t poll);

#endif
