/* Memory that lanes may read and write: a few growing regions, cut into whole pages. Region i of
 * the wire is slab i (W21). The owner's lock guards it. */
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

/* Most bytes of a job on one worker. A lane maps at most 1 TiB of a connection, and ends one that
 * lends more. */
#define SLABS_BYTES_MOST (UINT64_C(512) << 30)
#define SLAB_CLASSES 40 /* of free extents, by doubling size: pages of a slab of any length */

struct slab_extent;
struct slab {
    struct region region;
    struct list extents; /* in order of offset, without gaps */
    struct list free[SLAB_CLASSES];
    struct slab_extent **by_page; /* the extent that begins there; NULL: none */
    bool has_kept;
};

struct slabs {
    struct slab slab[FABRIC_REGIONS_MAX];
    uint32_t count;
};

/* Zeroed whole pages, all there; at least one. A new slab raises `count`: the caller lends it.
 * Errors: -ENOMEM, -EMFILE, -ENOSPC (more than SLABS_BYTES_MOST, or than slabs can be lent). */
int slabs_alloc(struct slabs *s, size_t bytes, void **ret_memory);
/* As slabs_alloc(), without pages: the caller populates them before it names them to a lane (S14).
 */
int slabs_reserve(struct slabs *s, size_t bytes, void **ret_memory);
/* Gives the pages back to the system. -ENOENT: not from here. */
int slabs_free(struct slabs *s, void *memory);
/* Lets the pages outlast slabs_fini(). -ENOENT: not from here. */
int slabs_keep(struct slabs *s, void *memory);
/* Whether all of the memory lies in one slab, and its place there. */
bool slabs_find(const struct slabs *s, const void *memory, size_t bytes,
                struct slab_place *ret_place);
void slabs_fini(struct slabs *s);
void slabs_abandon_in_child(struct slabs *s);

static inline void *slabs_at(const struct slabs *s, struct slab_place place)
{
    return (char *)s->slab[place.region].region.base + place.offset;
}

#endif
