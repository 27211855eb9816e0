/* Memory that lanes may read and write: a few growing regions, divided into whole pages. Slab i has
 * region number i in messages (W21). The lock of the owner protects all of it. */
#ifndef GRADPOOL_FABRIC_SLAB_H
#define GRADPOOL_FABRIC_SLAB_H

#include "svc/base/list.h"
#include "svc/fabric/fabric.h"
#include "svc/fabric/region.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A place in lent memory. */
struct slab_place {
    uint32_t region;
    uint64_t offset;
};

/* Maximum bytes of a job on one worker. A lane maps at most 1 TiB for a connection, and ends a
 * connection that lends more. */
#define SLABS_BYTES_MOST (UINT64_C(512) << 30)
/* free extents are listed by classes of doubling size: up to a slab of any length */
#define SLAB_CLASSES 40

struct slab_extent;
struct slab {
    struct region region;
    struct list extents; /* extents in order of offset, without gaps */
    struct list free[SLAB_CLASSES];
    struct slab_extent **by_page; /* by page: the extent that begins there; NULL: none */
    bool has_kept;
};

struct slabs {
    struct slab slab[FABRIC_REGIONS_MAX];
    uint32_t count;
};

/* Allocates whole zeroed pages, at least one; all of them are populated. If a new slab was needed,
 * `count` has grown, and the caller has to lend the slab. Errors: -ENOMEM, -EMFILE, -ENOSPC (more
 * than SLABS_BYTES_MOST, or more slabs than can be lent). */
int slabs_alloc(struct slabs *s, size_t bytes, void **ret_memory);
/* Like slabs_alloc(), but without pages. The caller populates them before it sends a lane their
 * place (S14). */
int slabs_reserve(struct slabs *s, size_t bytes, void **ret_memory);
/* Returns the pages to the system. -ENOENT: not memory of these slabs. */
int slabs_free(struct slabs *s, void *memory);
/* Lets the pages stay mapped after slabs_fini(). -ENOENT: not memory of these slabs. */
int slabs_keep(struct slabs *s, void *memory);
/* Returns whether all of the memory is in one slab, and its place there. */
bool slabs_find(const struct slabs *s, const void *memory, size_t bytes,
                struct slab_place *ret_place);
void slabs_fini(struct slabs *s);
void slabs_abandon_in_child(struct slabs *s);

static inline void *slabs_at(const struct slabs *s, struct slab_place place)
{
    return (char *)s->slab[place.region].region.base + place.offset;
}

#endif
