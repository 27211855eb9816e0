/* Owns the regions a job lends and says which pages of them are taken. First fit, because it is
 * asked when tensors are declared and never on the way of a push. Must never unmap a slab that is
 * lent: slabs live as long as the job. */
#include "client/slab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Slabs double, so that 64 of them hold any model; untouched pages cost nothing. */
/* Of a job on one worker. A lane maps at most 1 TiB of a connection and cuts off who lends more. */
#define SLABS_BYTES_MOST (UINT64_C(512) << 30)
#define SLAB_BYTES_FIRST (UINT64_C(4) << 20)
#define SLAB_DOUBLINGS_MAX 8

struct slab_extent {
    struct list node;
    uint64_t offset, bytes;
    bool is_used;
};

static uint64_t whole_pages(uint64_t bytes)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    return bytes ? (bytes + page_bytes - 1) / page_bytes * page_bytes : page_bytes;
}

static struct slab_extent *add_extent(struct list *at, uint64_t offset, uint64_t bytes)
{
    struct slab_extent *extent = calloc(1, sizeof *extent);
    if (!extent)
        return NULL;
    extent->offset = offset;
    extent->bytes = bytes;
    list_insert_before(at, &extent->node);
    return extent;
}

static uint64_t bytes_of_all(const struct slabs *s)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < s->count; i++)
        bytes += s->slab[i].region.bytes;
    return bytes;
}

static int grow(struct slabs *s, uint64_t bytes)
{
    struct slab *slab = &s->slab[s->count];
    uint32_t doublings = s->count < SLAB_DOUBLINGS_MAX ? s->count : SLAB_DOUBLINGS_MAX;
    uint64_t slab_bytes = SLAB_BYTES_FIRST << doublings;
    if (s->count == FABRIC_REGIONS_MAX || bytes > SLABS_BYTES_MOST ||
        bytes_of_all(s) > SLABS_BYTES_MOST - bytes)
        return -ENOSPC;
    int r = region_create(bytes > slab_bytes ? bytes : slab_bytes, &slab->region);
    if (r < 0)
        return r;
    list_init(&slab->extents);
    if (!add_extent(&slab->extents, 0, slab->region.bytes)) {
        region_destroy(&slab->region);
        return -ENOMEM;
    }
    s->count++;
    return 0;
}

static struct slab_extent *find_free(struct slab *slab, uint64_t bytes)
{
    list_for_each (node, &slab->extents) {
        struct slab_extent *extent = list_entry(node, struct slab_extent, node);
        if (!extent->is_used && extent->bytes >= bytes)
            return extent;
    }
    return NULL;
}

static int take(struct slab *slab, struct slab_extent *extent, uint64_t bytes, void **ret_memory)
{
    uint64_t rest = extent->bytes - bytes;
    if (rest > 0 && !add_extent(extent->node.next, extent->offset + bytes, rest))
        return -ENOMEM;
    extent->bytes = bytes;
    extent->is_used = true;
    *ret_memory = (char *)slab->region.base + extent->offset;
    return 0;
}

int slabs_alloc(struct slabs *s, size_t bytes, void **ret_memory)
{
    if (bytes > PTRDIFF_MAX)
        return -ENOMEM;
    uint64_t wanted = whole_pages(bytes);
    for (uint32_t i = 0; i < s->count; i++) {
        struct slab_extent *extent = find_free(&s->slab[i], wanted);
        if (extent)
            return take(&s->slab[i], extent, wanted, ret_memory);
    }
    int r = grow(s, wanted);
    if (r < 0)
        return r;
    struct slab *slab = &s->slab[s->count - 1];
    return take(slab, find_free(slab, wanted), wanted, ret_memory);
}

static void merge_with_next(struct slab *slab, struct slab_extent *extent)
{
    if (extent->node.next == &slab->extents)
        return;
    struct slab_extent *next = list_entry(extent->node.next, struct slab_extent, node);
    if (extent->is_used || next->is_used)
        return;
    extent->bytes += next->bytes;
    list_remove(&next->node);
    free(next);
}

static void release(struct slab *slab, struct slab_extent *extent)
{
    void *memory = (char *)slab->region.base + extent->offset;
    /* A hole reads as zero, which is what the next owner was promised. */
    if (madvise(memory, extent->bytes, MADV_REMOVE) < 0)
        memset(memory, 0, extent->bytes);
    extent->is_used = false;
    merge_with_next(slab, extent);
    if (extent->node.previous != &slab->extents)
        merge_with_next(slab, list_entry(extent->node.previous, struct slab_extent, node));
}

int slabs_free(struct slabs *s, void *memory)
{
    struct place place;
    if (!slabs_find(s, memory, 1, &place))
        return -ENOENT;
    struct slab *slab = &s->slab[place.region];
    list_for_each (node, &slab->extents) {
        struct slab_extent *extent = list_entry(node, struct slab_extent, node);
        if (extent->offset == place.offset && extent->is_used) {
            release(slab, extent);
            return 0;
        }
    }
    return -ENOENT;
}

bool slabs_find(const struct slabs *s, const void *memory, size_t bytes, struct place *ret_place)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const struct region *region = &s->slab[i].region;
        uintptr_t offset = (uintptr_t)memory - (uintptr_t)region->base;
        if (offset < region->bytes && bytes <= region->bytes - offset) {
            *ret_place = (struct place){.region = i, .offset = offset};
            return true;
        }
    }
    return false;
}

void slabs_fini(struct slabs *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        list_for_each_safe (node, &s->slab[i].extents)
            free(list_entry(node, struct slab_extent, node));
        region_destroy(&s->slab[i].region);
    }
    s->count = 0;
}

/* The mappings stay: the child may still read a tensor that lies there. */
void slabs_abandon_in_child(struct slabs *s)
{
    for (uint32_t i = 0; i < s->count; i++)
        close(s->slab[i].region.fd);
}
