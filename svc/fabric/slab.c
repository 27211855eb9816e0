/* Owns the regions that a job lends, and records which pages are in use. Allocating and freeing
 * take constant time, because a model may have 262,144 tensors with two extents (runs of pages)
 * each. A lent slab is not unmapped before the end of the job. Kept pages stay mapped even
 * longer. */
#include "svc/fabric/slab.h"

#include "svc/base/system/populate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Each slab is twice as large as the previous one, so that 64 slabs are enough for any model. Pages
 * that are not used are not allocated. */
#define SLAB_BYTES_FIRST (UINT64_C(4) << 20)
#define SLAB_DOUBLINGS_MAX 8
/* Maximum number of free extents to try in the class of the wanted size, where some extents are too
 * small. In every higher class all extents are large enough. */
#define CLASS_LOOKS 8

struct slab_extent {
    struct list node;
    struct list free_node; /* node in a class of the slab while the extent is free */
    uint64_t offset, bytes;
    bool is_used, is_kept;
};

static uint64_t slab_page_bytes(void) { return (uint64_t)sysconf(_SC_PAGESIZE); }

static uint64_t slab_whole_pages(uint64_t bytes)
{
    uint64_t page = slab_page_bytes();
    return bytes ? (bytes + page - 1) / page * page : page;
}

/* Returns the class of a size. Extents of class c have at least 2^c and less than 2^(c+1) pages. */
static uint32_t slab_class_of(uint64_t bytes)
{
    return 63 - (uint32_t)__builtin_clzll(bytes / slab_page_bytes());
}

static void slab_set_free(struct slab *slab, struct slab_extent *extent)
{
    extent->is_used = extent->is_kept = false;
    list_prepend(&slab->free[slab_class_of(extent->bytes)], &extent->free_node);
}

static struct slab_extent **slab_at_page(struct slab *slab, uint64_t offset)
{
    return &slab->by_page[offset / slab_page_bytes()];
}

static struct slab_extent *slab_add_extent(struct slab *slab, struct list *at, uint64_t offset,
                                           uint64_t bytes)
{
    struct slab_extent *extent = calloc(1, sizeof *extent);
    if (!extent)
        return NULL;
    *extent = (struct slab_extent){.offset = offset, .bytes = bytes};
    list_init(&extent->free_node);
    list_insert_before(at, &extent->node);
    *slab_at_page(slab, offset) = extent;
    slab_set_free(slab, extent);
    return extent;
}

/* Uses calloc(), because table entries that are never used then take no memory. */
static int slab_init_extents(struct slab *slab)
{
    list_init(&slab->extents);
    for (uint32_t i = 0; i < SLAB_CLASSES; i++)
        list_init(&slab->free[i]);
    slab->by_page = calloc(slab->region.bytes / slab_page_bytes(), sizeof *slab->by_page);
    if (slab->by_page && slab_add_extent(slab, &slab->extents, 0, slab->region.bytes))
        return 0;
    free(slab->by_page);
    return -ENOMEM;
}

static uint64_t slabs_bytes(const struct slabs *s)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < s->count; i++)
        bytes += s->slab[i].region.bytes;
    return bytes;
}

static int slab_grow(struct slabs *s, uint64_t bytes)
{
    struct slab *slab = &s->slab[s->count];
    uint32_t doublings = s->count < SLAB_DOUBLINGS_MAX ? s->count : SLAB_DOUBLINGS_MAX;
    uint64_t slab_bytes = SLAB_BYTES_FIRST << doublings;
    if (s->count == FABRIC_REGIONS_MAX || slabs_bytes(s) > SLABS_BYTES_MOST - bytes)
        return -ENOSPC;
    int error = region_reserve(bytes > slab_bytes ? bytes : slab_bytes, &slab->region);
    if (error < 0)
        return error;
    error = slab_init_extents(slab);
    if (error < 0)
        region_destroy(&slab->region);
    else
        s->count++;
    return error;
}

static struct slab_extent *slab_find_free(struct slab *slab, uint64_t bytes)
{
    uint32_t looks = 0, class = slab_class_of(bytes);
    list_for_each_entry (struct slab_extent, extent, &slab->free[class], free_node) {
        if (extent->bytes >= bytes)
            return extent;
        if (++looks == CLASS_LOOKS)
            break;
    }
    while (++class < SLAB_CLASSES)
        if (!list_is_empty(&slab->free[class]))
            return list_entry(slab->free[class].next, struct slab_extent, free_node);
    return NULL;
}

static int slab_take(struct slab *slab, struct slab_extent *extent, uint64_t bytes,
                     void **ret_memory)
{
    uint64_t rest = extent->bytes - bytes;
    if (rest > 0 && !slab_add_extent(slab, extent->node.next, extent->offset + bytes, rest))
        return -ENOMEM;
    extent->bytes = bytes;
    extent->is_used = true;
    list_remove(&extent->free_node);
    *ret_memory = (char *)slab->region.base + extent->offset;
    return 0;
}

int slabs_reserve(struct slabs *s, size_t bytes, void **ret_memory)
{
    if (bytes > SLABS_BYTES_MOST)
        return -ENOSPC;
    uint64_t wanted = slab_whole_pages(bytes);
    for (uint32_t i = 0; i < s->count; i++) {
        struct slab_extent *extent = slab_find_free(&s->slab[i], wanted);
        if (extent)
            return slab_take(&s->slab[i], extent, wanted, ret_memory);
    }
    int error = slab_grow(s, wanted);
    if (error < 0)
        return error;
    struct slab *slab = &s->slab[s->count - 1];
    return slab_take(slab, slab_find_free(slab, wanted), wanted, ret_memory);
}

/* Removes the extent at this position of the list from its class. Returns NULL if the list ends at
 * this position, or if the extent is in use. */
static struct slab_extent *slab_take_free(struct slab *slab, struct list *at)
{
    struct slab_extent *extent = list_entry(at, struct slab_extent, node);
    if (at == &slab->extents || extent->is_used)
        return NULL;
    list_remove(&extent->free_node);
    return extent;
}

static struct slab_extent *slab_merge(struct slab *slab, struct slab_extent *first,
                                      struct slab_extent *second)
{
    if (!first || !second)
        return first ? first : second;
    first->bytes += second->bytes;
    *slab_at_page(slab, second->offset) = NULL;
    list_remove(&second->node);
    free(second);
    return first;
}

static void slab_release(struct slab *slab, struct slab_extent *extent)
{
    void *memory = (char *)slab->region.base + extent->offset;
    /* The next owner expects zeros, and pages that were removed from the file read as zeros. */
    if (madvise(memory, extent->bytes, MADV_REMOVE) < 0)
        memset(memory, 0, extent->bytes);
    extent = slab_merge(slab, extent, slab_take_free(slab, extent->node.next));
    slab_set_free(slab, slab_merge(slab, slab_take_free(slab, extent->node.previous), extent));
}

/* Finds the used extent that begins at `memory`, and its slab. Returns NULL if there is none. */
static struct slab_extent *slab_find_used(struct slabs *s, const void *memory,
                                          struct slab **ret_slab)
{
    struct slab_place place;
    if (!slabs_find(s, memory, 1, &place))
        return NULL;
    *ret_slab = &s->slab[place.region];
    struct slab_extent *extent = *slab_at_page(*ret_slab, place.offset);
    return extent && extent->offset == place.offset && extent->is_used ? extent : NULL;
}

int slabs_free(struct slabs *s, void *memory)
{
    struct slab *slab;
    struct slab_extent *extent = slab_find_used(s, memory, &slab);
    if (!extent)
        return -ENOENT;
    slab_release(slab, extent);
    return 0;
}

int slabs_alloc(struct slabs *s, size_t bytes, void **ret_memory)
{
    void *memory;
    int error = slabs_reserve(s, bytes, &memory);
    if (error == 0 && populate(memory, slab_whole_pages(bytes)) < 0) {
        slabs_free(s, memory);
        error = -ENOMEM;
    }
    if (error == 0)
        *ret_memory = memory;
    return error;
}

int slabs_keep(struct slabs *s, void *memory)
{
    struct slab *slab;
    struct slab_extent *extent = slab_find_used(s, memory, &slab);
    if (!extent)
        return -ENOENT;
    extent->is_kept = slab->has_kept = true;
    return 0;
}

bool slabs_find(const struct slabs *s, const void *memory, size_t bytes,
                struct slab_place *ret_place)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const struct region *region = &s->slab[i].region;
        uintptr_t offset = (uintptr_t)memory - (uintptr_t)region->base;
        if (offset < region->bytes && bytes <= region->bytes - offset) {
            *ret_place = (struct slab_place){.region = i, .offset = offset};
            return true;
        }
    }
    return false;
}

/* Unmaps the slab except its kept pages, which the caller owns from now on. No other process has
 * opened their file. */
static void slab_unmap(struct slab *slab)
{
    if (!slab->has_kept) {
        region_destroy(&slab->region);
        return;
    }
    list_for_each_entry (const struct slab_extent, extent, &slab->extents, node)
        if (!extent->is_kept)
            munmap((char *)slab->region.base + extent->offset, extent->bytes);
    if (slab->region.fd >= 0)
        close(slab->region.fd);
}

void slabs_fini(struct slabs *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        struct slab *slab = &s->slab[i];
        slab_unmap(slab);
        list_for_each_safe (node, &slab->extents)
            free(list_entry(node, struct slab_extent, node));
        free(slab->by_page);
        *slab = (struct slab){0};
    }
    s->count = 0;
}

/* Closes the descriptors. The mappings stay, because the child may still read tensors in them. */
void slabs_abandon_in_child(struct slabs *s)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->slab[i].region.fd >= 0)
            close(s->slab[i].region.fd);
}
