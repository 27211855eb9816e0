/* Memory that lanes may read and write: a few large regions, divided into whole pages. Slab i has
 * region number i in messages (W21). The owner's lock protects all of it. */
#ifndef GRADPOOL_FABRIC_SLAB_H
#define GRADPOOL_FABRIC_SLAB_H

#include "svc/base/list.h"
#include "svc/fabric/fabric.h"
#include "svc/fabric/region.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A location in lent memory. */
struct slab_place {
    uint32_t region;
    uint64_t offset;
};

/* Maximum bytes that one worker lends for a job. A lane closes a connection that lends more than 1
 * TiB. */
#define SLABS_BYTES_MOST (UINT64_C(512) << 30)
/* Number of classes of free extents. The extents of a class are twice as large as the extents of
 * the previous class. */
#define SLAB_CLASSES 40

struct slab_extent;
struct slab {
    struct region region;
    struct list extents; /* all extents in the order of offsets, without gaps */
    struct list free[SLAB_CLASSES];
    struct slab_extent **by_page; /* indexed by page: extent that begins at this page, or NULL */
    bool has_kept;
};

struct slabs {
    struct slab slab[FABRIC_REGIONS_MAX];
    uint32_t count;
};

/* Allocates whole zeroed pages, at least one. If a new slab was needed, `count` has grown, and the
 * caller has to lend the slab. Returns 0, -ENOMEM, -EMFILE, or -ENOSPC if SLABS_BYTES_MOST or the
 * number of slabs is exceeded. */
int slabs_alloc(struct slabs *s, size_t bytes, void **ret_memory);
/* Like slabs_alloc(), but the kernel has not allocated the pages yet. The caller must make the
 * kernel allocate them before a lane receives their location (S14). */
int slabs_reserve(struct slabs *s, size_t bytes, void **ret_memory);
/* Returns the pages to the kernel. Returns 0, or -ENOENT if the memory is not in these slabs. */
int slabs_free(struct slabs *s, void *memory);
/* Keeps the pages mapped after slabs_fini(). Returns 0, or -ENOENT if the memory is not in these
 * slabs. */
int slabs_keep(struct slabs *s, void *memory);
/* Returns whether all of the memory is in one slab. `ret_place`: its location. */
bool slabs_find(const struct slabs *s, const void *memory, size_t bytes,
                struct slab_place *ret_place);
void slabs_fini(struct slabs *s);
void slabs_abandon_in_child(struct slabs *s);

static inline void *slabs_at(const struct slabs *s, struct slab_place place)
{
    return (char *)s->slab[place.region].region.base + place.offset;
}

#endif
