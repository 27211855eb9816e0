/* Memory that a worker lends. Memory made here is a sealed memfd: fabric_shm can pass it to a lane
 * on the same host, and fabric_ofi can register it. Other memory can only be registered. Where the
 * kernel refuses memfd_create (a sandbox), plain memory is made, which can only be registered as
 * well. */
#ifndef GRADPOOL_FABRIC_REGION_H
#define GRADPOOL_FABRIC_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct region {
    void *base;
    size_t bytes;
    int fd;       /* memfd sealed against shrinking and growing; -1: plain or other memory */
    bool is_ours; /* the memory was made here */
};

/* Makes a region of `bytes`, rounded up to pages, which are zero. All pages are allocated at once,
 * so that the lender pays for them (S14). Errors: -ENOMEM, -EMFILE, -ENOSPC, -EFBIG
 * (RLIMIT_FSIZE). */
int region_create(size_t bytes, struct region *ret_region);
/* Like region_create(), but without pages. They must be populated before a lane is informed of
 * them. */
int region_reserve(size_t bytes, struct region *ret_region);
/* Describes memory that still belongs to the caller. */
void region_wrap(void *base, size_t bytes, struct region *ret_region);
/* Unmaps and closes memory that was made here. Memory of the caller stays untouched. NULL is
 * fine. */
void region_destroy(struct region *region);

#endif
