/* Memory that a worker lends. Made here it is a sealed memfd, so that fabric_shm can pass it to a
 * lane of the same host and fabric_ofi can register it; memory made elsewhere can only be
 * registered. Where the kernel refuses memfd_create (a sandbox), plain memory is made, which can
 * only be registered, too. */
#ifndef GRADPOOL_FABRIC_REGION_H
#define GRADPOOL_FABRIC_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct region {
    void *base;
    size_t bytes;
    int fd;       /* memfd sealed against shrinking and growing; -1: none */
    bool is_ours; /* made here */
};

/* Rounds `bytes` up to pages, which are zero. All are there: their lender pays for them (S14).
 * Errors: -ENOMEM, -EMFILE, -ENOSPC, -EFBIG (RLIMIT_FSIZE). */
int region_create(size_t bytes, struct region *ret_region);
/* As region_create(), without pages: they are to be populated before a lane learns of them. */
int region_reserve(size_t bytes, struct region *ret_region);
/* Describes memory that stays the caller's. */
void region_wrap(void *base, size_t bytes, struct region *ret_region);
/* Unmaps and closes memory that was made here; wrapped memory is left alone. NULL is fine. */
void region_destroy(struct region *region);

#endif
