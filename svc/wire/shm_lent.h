/* A region that a worker lends, as the lane has it: mapped by the mapper's thread (shm_mapper.h),
 * with a bit for each page that is known to be mapped. Between shm_mapper_give() and the moment
 * when it is done the mapper's thread owns it, otherwise the lane's. */
#ifndef GRADPOOL_WIRE_SHM_LENT_H
#define GRADPOOL_WIRE_SHM_LENT_H

#include "svc/base/list.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SHM_LENT_LOOKS 2

struct shm_lent {
    struct list link; /* in the mapper's queue */
    uint32_t id;      /* the worker's number of it */
    int fd;           /* -1 once mapped, where absent pages fail */
    void *base;       /* NULL: not mapped yet */
    uint64_t bytes;
    bool fails;              /* a touch of an absent page does, and adds none */
    uint64_t *known;         /* bit i: page i was mapped */
    uint64_t known_end;      /* all pages before were mapped; whole pages, or the end */
    _Atomic bool *poisoned;  /* the connection's */
    uint64_t offset, wanted; /* what is to be mapped */
    uint64_t ahead;          /* and from here on whatever is there */
    int result;              /* 0; -EFAULT: a page that is wanted is absent; errors of mmap */
    bool is_given, is_over;  /* under the mapper's lock: to be mapped; to be unmapped */
    atomic_bool is_done;
    struct {
        uint64_t offset, bytes;
    } looks[SHM_LENT_LOOKS]; /* since the last poll, where absent pages do not fail */
    uint32_t next_look;
    uint32_t looked_in; /* the poll before the looks */
};

/* Takes `fd` over if it succeeds. -ENOMEM. */
int shm_lent_create(uint32_t id, int fd, uint64_t bytes, _Atomic bool *poisoned,
                    struct shm_lent **ret_lent);
/* Unmaps it, too. NULL is fine. */
void shm_lent_destroy(struct shm_lent *lent);

/* A slice of the work, of a few milliseconds. 0: all is done; -EAGAIN: there is more. */
int shm_lent_work(struct shm_lent *lent);

/* Whether all pages of that range are known to be mapped; it lies in the region. */
bool shm_lent_knows_pages(const struct shm_lent *lent, uint64_t offset, uint64_t bytes);
static inline bool shm_lent_knows(const struct shm_lent *lent, uint64_t offset, uint64_t bytes)
{
    return offset + bytes <= lent->known_end || shm_lent_knows_pages(lent, offset, bytes);
}
/* Right before a touch: whether its pages are there, where nothing else keeps a touch from adding
 * them. A look is good until `poll` changes. */
bool shm_lent_is_there(struct shm_lent *lent, uint64_t offset, uint64_t bytes, uint32_t poll);

#endif
