/* Memory that a worker lends. region_create() creates a sealed memfd, which fabric_shm can pass to
 * a lane on the same host and fabric_ofi can register. Other memory can only be registered with
 * fabric_ofi. If a sandbox refuses memfd_create(), region_create() returns such plain memory. */
#ifndef GRADPOOL_FABRIC_REGION_H
#define GRADPOOL_FABRIC_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct region {
    void *base;
    size_t bytes;
    /* memfd, sealed against shrinking and growing; -1: plain memory, or memory of the caller */
    int fd;
    bool is_ours; /* this process has created the region */
};

/* Creates a region of `bytes`, rounded up to pages, all zero. All pages are allocated at once,
 * so that their cost is paid by this process and not by the lane (S14). Returns 0, -ENOMEM,
 * -EMFILE, -ENOSPC or -EFBIG (RLIMIT_FSIZE). */
int region_create(size_t bytes, struct region *ret_region);
/* Like region_create(), but pages are not allocated. The caller must allocate them before a lane
 * receives their address. */
int region_reserve(size_t bytes, struct region *ret_region);
/* Describes memory that the caller owns. */
void region_wrap(void *base, size_t bytes, struct region *ret_region);
/* Unmaps and closes memory that was created here. Memory of the caller is not changed. NULL is
 * allowed. */
void region_destroy(struct region *region);

#endif
