/* Finds missing pages of shared memory, and prevents an access from allocating them. Owns the
 * userfaultfd of the process. No thread reads the userfaultfd: accessing a missing page raises
 * SIGBUS, which sigbus.c handles. Makes no call on a peer's descriptor that the peer could block:
 * lseek() would wait for the peer's locks. S8 and S14 of svc/fabric/shm/README.md. */
#include "svc/fabric/shm/map/absent.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

#define FEATURES (UFFD_FEATURE_SIGBUS | UFFD_FEATURE_MISSING_SHMEM)
#define LOOK_PAGES 256

static int fault_fd = -1;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static const pthread_once_t never = PTHREAD_ONCE_INIT;

static uint64_t absent_page_bytes(void) { return (uint64_t)sysconf(_SC_PAGESIZE); }

/* Calls madvise() for an empty range, which succeeds if the kernel knows the advice. */
static bool absent_can_populate(void)
{
    char page;
    void *start = (void *)((uintptr_t)&page / absent_page_bytes() * absent_page_bytes());
    return madvise(start, 0, MADV_POPULATE_READ) == 0;
}

/* Closes the inherited userfaultfd in a forked child. The descriptor still refers to the parent's
 * address space, so the child would register ranges of the parent. */
static void forget_fault_fd(void)
{
    if (fault_fd >= 0)
        close(fault_fd);
    fault_fd = -1;
    once = never;
}

static void open_fault_fd(void)
{
    struct uffdio_api api = {.api = UFFD_API, .features = FEATURES};
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    if (fd < 0)
        return;
    (void)pthread_atfork(NULL, NULL, forget_fault_fd);
    if (absent_can_populate() && ioctl(fd, UFFDIO_API, &api) == 0 &&
        (api.features & FEATURES) == FEATURES)
        fault_fd = fd;
    else
        close(fd);
}

bool shm_absent_can_fail(void)
{
    pthread_once(&once, open_fault_fd);
    return fault_fd >= 0;
}

bool shm_absent_fail(void *base, uint64_t bytes)
{
    uint64_t page = absent_page_bytes();
    struct uffdio_register range = {.range = {(uintptr_t)base, (bytes + page - 1) / page * page},
                                    .mode = UFFDIO_REGISTER_MODE_MISSING};
    return shm_absent_can_fail() && ioctl(fault_fd, UFFDIO_REGISTER, &range) == 0;
}

/* Returns whether the page is swapped out, which looks like a missing page. The function reads the
 * file: a read loads a swapped-out page, and finds no data for a missing page. */
static bool is_swapped(const char *at, int fd, uint64_t offset)
{
    unsigned char is_there = 0;
    char byte;
    if (fd < 0 || pread(fd, &byte, 1, (off_t)offset) != 1)
        return false;
    return mincore((void *)at, 1, &is_there) == 0 && (is_there & 1);
}

static uint64_t look_at_some(const char *base, uint64_t bytes, int fd, uint64_t offset)
{
    unsigned char is_there[LOOK_PAGES];
    uint64_t page = absent_page_bytes(), found = 0;
    if (mincore((void *)base, bytes, is_there) < 0)
        return 0;
    for (; found < bytes; found += page)
        if (!(is_there[found / page] & 1) && !is_swapped(base + found, fd, offset + found))
            return found;
    return bytes;
}

/* The range is checked in blocks of whole pages, because mincore() checks whole pages. Only the
 * last page of the range may be incomplete. */
uint64_t shm_absent_look(const void *base, uint64_t bytes, int fd, uint64_t offset)
{
    uint64_t before = (uintptr_t)base % absent_page_bytes(),
             most = LOOK_PAGES * absent_page_bytes();
    const char *start = (const char *)base - before;
    uint64_t whole = before + bytes;
    for (uint64_t at = 0; at < whole; at += most) {
        uint64_t some = whole - at < most ? whole - at : most;
        uint64_t found = look_at_some(start + at, some, fd, offset - before + at);
        if (found < some)
            return at + found > before ? at + found - before : 0;
    }
    return bytes;
}

/* Maps pages in advance. On a kernel that does not know this advice, returns false; each page is
 * then mapped by its first access. */
static bool absent_populate(void *base, uint64_t bytes)
{
    int error;
    do
        error = madvise(base, bytes, MADV_POPULATE_READ);
    while (error < 0 && (errno == EINTR || errno == EAGAIN));
    return error == 0;
}

uint64_t shm_absent_fill(void *base, uint64_t bytes, bool fails, int fd, uint64_t offset)
{
    uint64_t before = (uintptr_t)base % absent_page_bytes();
    void *start = (char *)base - before;
    if (fails && absent_populate(start, before + bytes))
        return bytes;
    uint64_t there = shm_absent_look(base, bytes, fd, offset);
    if (there > 0 && !fails)
        (void)absent_populate(start, before + there);
    return there;
}
