/* A region that a worker lends, as the lane has it: mapped by the mapper's thread (mapper.h),
 * with a bit for each page that is known to be mapped. The mapper's thread owns it between
 * shm_mapper_give() and the moment when it is done, the lane's thread at all other times. */
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
    struct list link; /* in the mapper's queue while pages are to be mapped */
    uint32_t id;      /* the worker's number */
    int fd;           /* -1 once mapped, where absent pages fail */
    void *base;       /* NULL: not mapped yet */
    uint64_t bytes;
    bool fails;                /* a touch of an absent page fails, and adds none */
    uint64_t *known;           /* bit i: page i was mapped */
    uint64_t known_end;        /* all pages before it were mapped; whole pages, or the end */
    _Atomic bool *poisoned;    /* the connection's */
    uint64_t offset, wanted;   /* range to be mapped */
    uint64_t ahead;            /* from here on pages are mapped as far as they are there */
    struct shm_record *record; /* names these pages, and waits for them; NULL: none does */
    int result;                /* 0; -EFAULT: a wanted page is absent; errors of mmap */
    uint64_t due_ns;           /* not to be mapped before */
    uint64_t spent_ns;         /* by the mapper since the region was given */
    bool is_given, is_over;    /* under the mapper's lock: to be mapped; to be unmapped */
    struct shm_warmth *warmth; /* warmth.h */
    atomic_bool is_done;
    /* checks for absent pages, for mappings where a touch of one does not fail */
    struct shm_looks *looks;
};

/* On success takes `fd` over. -ENOMEM. */
int shm_lent_create(uint32_t id, int fd, uint64_t bytes, _Atomic bool *poisoned,
                    struct shm_lent **ret_lent);
/* Unmaps the region, too. NULL is fine. */
void shm_lent_destroy(struct shm_lent *lent);

/* A slice of the work, of a few milliseconds. 0: all is done; -EAGAIN: there is more. */
int shm_lent_work(struct shm_lent *lent);

/* Whether all pages of that range are known to be mapped; it lies in the region. */
static inline bool shm_lent_knows_page(const struct shm_lent *lent, uint64_t page)
{
    return lent->known[page / SHM_LENT_WORD_PAGES] >> (page % SHM_LENT_WORD_PAGES) & 1;
}
bool shm_lent_knows_pages(const struct shm_lent *lent, uint64_t offset, uint64_t bytes);
static inline bool shm_lent_knows(const struct shm_lent *lent, uint64_t offset, uint64_t bytes)
{
    return offset + bytes <= lent->known_end || shm_lent_knows_pages(lent, offset, bytes);
}
/* Right before a touch, where nothing else keeps it from adding pages: whether the pages are there.
 * A look is good until `poll` changes. */
bool shm_lent_is_there(struct shm_lent *lent, uint64_t offset, uint64_t bytes, uint32_t poll);

#endif
