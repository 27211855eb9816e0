/* Creates memory that can be lent: sealed memfds, mapped as shared. The seals are set before any
 * other process can have the descriptor. A lane checks the seals, so that the memory cannot be
 * truncated later, which would make accesses fail (W9). */
#include "svc/fabric/region.h"

#include "svc/base/cleanup.h"
#include "svc/base/system/populate.h"
#include "svc/base/system/shortage.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#define REGION_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Converts an errno to one of the codes that the header lists for missing descriptors, space or
 * memory. */
static int region_error(int error)
{
    switch (error) {
    case EMFILE:
    case ENFILE: return -EMFILE;
    case ENOSPC: return -ENOSPC;
    case EFBIG: return -EFBIG;
    default: return -ENOMEM;
    }
}

/* Rounds up to whole pages, at least one. Returns 0 if the result could not be mapped. */
static size_t region_whole_pages(size_t bytes)
{
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    if (bytes > PTRDIFF_MAX - page_bytes)
        return 0;
    size_t pages = (bytes + page_bytes - 1) / page_bytes;
    return (pages ? pages : 1) * page_bytes;
}

static int region_map(size_t bytes, int flags, int fd, struct region *ret_region)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd, 0);
    if (base == MAP_FAILED)
        return region_error(errno);
    *ret_region = (struct region){.base = base, .bytes = bytes, .fd = fd, .is_ours = true};
    return 0;
}

int region_reserve(size_t bytes, struct region *ret_region)
{
    size_t mapped = region_whole_pages(bytes);
    if (mapped == 0)
        return -ENOMEM;
    _cleanup_fd_ int fd = memfd_create("gradpool", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 && shortage_is_refusal(-errno))
        return region_map(mapped, MAP_ANONYMOUS, -1, ret_region);
    if (!shortage_file_fits(mapped))
        return -EFBIG;
    if (fd < 0 || ftruncate(fd, (off_t)mapped) < 0 || fcntl(fd, F_ADD_SEALS, REGION_SEALS) < 0)
        return region_error(errno);
    int error = region_map(mapped, 0, fd, ret_region);
    if (error == 0)
        (void)take_fd(&fd);
    return error;
}

int region_create(size_t bytes, struct region *ret_region)
{
    struct region region;
    int error = region_reserve(bytes, &region);
    if (error == 0 && populate(region.base, region.bytes) < 0) {
        region_destroy(&region);
        error = -ENOMEM;
    }
    if (error == 0)
        *ret_region = region;
    return error;
}

void region_wrap(void *base, size_t bytes, struct region *ret_region)
{
    *ret_region = (struct region){.base = base, .bytes = bytes, .fd = -1};
}

void region_destroy(struct region *region)
{
    if (!region)
        return;
    if (region->is_ours)
        munmap(region->base, region->bytes);
    if (region->fd >= 0)
        close(region->fd);
    *region = (struct region){.fd = -1};
}
