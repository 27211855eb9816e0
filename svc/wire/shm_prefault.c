/* Maps ahead, while a lane has nothing else to do, the pages that a lent region has already: those
 * of a task that has moved here would else cost its first round a fault each. Must never add a page
 * to a region, nor keep work waiting for more than a slice. Invariant S12 of svc/wire/README.md. */
#include "svc/wire/shm_prefault.h"

#include <sys/mman.h>
#include <unistd.h>

#define SLICE_BYTES (UINT64_C(1) << 20)
#define PAGE_BYTES_MIN 4096
/* As much as the kernel maps with one fault of a reader, as it comes (fault_around_bytes). */
#define AROUND_BYTES (UINT64_C(64) << 10)

void shm_prefault_add(struct shm_fabric *f, struct shm_region *region)
{
    region->prefaulted_bytes = 0;
    f->prefaults++;
}

void shm_prefault_remove(struct shm_fabric *f, struct shm_region *region)
{
    if (region->base && region->prefaulted_bytes < region->bytes)
        f->prefaults--;
}

/* One page that is there of each window, which the kernel aligns by address. */
static void touch(const char *slice, uint64_t bytes)
{
    unsigned char is_there[SLICE_BYTES / PAGE_BYTES_MIN];
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), touched = UINT64_MAX;

    if (mincore((void *)slice, bytes, is_there) < 0)
        return;
    for (uint64_t at = 0; at < bytes; at += page) {
        uint64_t window = ((uintptr_t)slice + at) / AROUND_BYTES;

        if (!(is_there[at / page] & 1) || window == touched)
            continue;
        (void)*(const volatile char *)(slice + at);
        touched = window;
    }
}

static void prefault(struct shm_fabric *f, struct shm_region *region)
{
    uint64_t left = region->bytes - region->prefaulted_bytes;
    uint64_t bytes = left < SLICE_BYTES ? left : SLICE_BYTES;

    touch((const char *)region->base + region->prefaulted_bytes, bytes);
    region->prefaulted_bytes += bytes;
    if (bytes == left)
        f->prefaults--;
}

bool shm_prefault_some(struct shm_fabric *f)
{
    if (f->prefaults == 0)
        return false;
    list_for_each (node, &f->conns) {
        struct shm_conn *c = list_entry(node, struct shm_conn, link);

        for (uint32_t id = 0; id < FABRIC_REGIONS_MAX; id++)
            if (c->regions[id].base && c->regions[id].prefaulted_bytes < c->regions[id].bytes) {
                prefault(f, &c->regions[id]);
                return true;
            }
    }
    return false;
}
