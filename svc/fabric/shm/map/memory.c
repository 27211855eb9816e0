/* Sealed memfds. A peer's descriptor is mapped only after its seals, kind and size were checked
 * (S3). The peer cannot block these checks: the first call reads the seals, and fails at once if
 * the descriptor is not a memfd. */
#include "svc/fabric/shm/map/memory.h"

#include "svc/base/cleanup.h"
#include "svc/base/system/populate.h"
#include "svc/base/system/shortage.h"
#include "svc/fabric/shm/map/sigbus.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

static uint64_t memory_whole_pages(uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    return (bytes + page - 1) / page * page;
}

int shm_memory_create(const char *name, uint64_t bytes, int *ret_fd, void **ret_base)
{
    _cleanup_fd_ int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    uint64_t whole = memory_whole_pages(bytes);

    if (fd < 0)
        return -errno;
    if (!shortage_file_fits(whole))
        return -EFBIG;
    if (ftruncate(fd, (off_t)whole) < 0 || fcntl(fd, F_ADD_SEALS, SEALS) < 0)
        return -errno;
    void *base = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return -errno;
    if (populate(base, whole) < 0) {
        munmap(base, whole);
        return -ENOMEM;
    }
    *ret_base = base;
    *ret_fd = take_fd(&fd);
    return 0;
}

int shm_memory_seal_writes(int fd)
{
    return fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) < 0 ? -errno : 0;
}

/* Checks that the descriptor is plain memory of exactly the expected size. Huge pages are refused,
 * because an access can raise SIGBUS whenever the host has none left. */
static int memory_check(int fd, uint64_t bytes)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct statfs fs;
    struct stat st;

    if (seals < 0 || (seals & SEALS) != SEALS)
        return -EBADMSG;
    if (fstatfs(fd, &fs) < 0 || fs.f_type != TMPFS_MAGIC || fstat(fd, &st) < 0)
        return -EBADMSG;
    if (bytes == 0 || bytes > INT64_MAX || (uint64_t)st.st_size != memory_whole_pages(bytes))
        return -EBADMSG;
    return 0;
}

static int memory_map(int fd, uint64_t bytes, int protection, void **ret_base)
{
    int error = memory_check(fd, bytes);

    if (error < 0)
        return error;
    void *base = mmap(NULL, memory_whole_pages(bytes), protection, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return errno == EPERM ? -EACCES : -errno;
    *ret_base = base;
    return 0;
}

int shm_memory_map_to_read(int fd, uint64_t bytes, void **ret_base)
{
    return memory_map(fd, bytes, PROT_READ, ret_base);
}

int shm_memory_map_guarded(int fd, uint64_t bytes, _Atomic bool *poisoned, void **ret_base)
{
    void *base = NULL;
    int error = memory_map(fd, bytes, PROT_READ | PROT_WRITE, &base);

    if (error < 0)
        return error;
    error = shm_sigbus_guard(base, memory_whole_pages(bytes), poisoned);
    if (error < 0) {
        munmap(base, memory_whole_pages(bytes));
        return error;
    }
    *ret_base = base;
    return 0;
}

void shm_memory_unmap(void *base, uint64_t bytes)
{
    if (!base)
        return;
    shm_sigbus_release(base);
    munmap(base, memory_whole_pages(bytes));
}
