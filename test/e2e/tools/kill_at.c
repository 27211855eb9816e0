/* A preloaded library that kills a process at its n-th call with an outside effect. Such a call
 * sends bytes to a peer, receives bytes from a peer, or writes to the store. The service's own
 * send() and recv() call these functions.
 *
 * test_migration_crash.py and test_regroup_crash.py preload it into `gradpool serve`,
 * test_copied_moves.py into `gradpool aggregator`.
 *
 * The file named by GRADPOOL_TEST_KILL_AT contains the remaining number of calls in 4 bytes. 0:
 * never. The test changes this number while the process runs. Only a process of the command in
 * GRADPOOL_TEST_KILL (serve) is killed, not its children. */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define SEEN_BY_ALL __attribute__((visibility("default")))

static _Atomic int32_t *left;

static int is_meant(void)
{
    const char *command = getenv("GRADPOOL_TEST_KILL");
    char line[256] = "";
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, line, sizeof line - 1);
    if (fd >= 0)
        close(fd);
    size_t program = strlen(line) + 1;
    return got > (ssize_t)program && strcmp(line + program, command ? command : "serve") == 0;
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("GRADPOOL_TEST_KILL_AT");
    if (!path || !is_meant())
        return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *memory = mmap(NULL, sizeof *left, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    left = memory == MAP_FAILED ? NULL : memory;
}

/* Runs before each counted call. The n-1 calls before it have already had their effect. */
static void count(void)
{
    int32_t now = left ? atomic_load(left) : 0;
    if (now > 0 && atomic_fetch_sub(left, 1) == 1)
        kill(getpid(), SIGKILL);
}

SEEN_BY_ALL ssize_t sendto(int fd, const void *bytes, size_t length, int flags,
                           const struct sockaddr *to, socklen_t to_length)
{
    ssize_t (*next)(int, const void *, size_t, int, const struct sockaddr *, socklen_t) =
        dlsym(RTLD_NEXT, "sendto");
    count();
    return next(fd, bytes, length, flags, to, to_length);
}

SEEN_BY_ALL ssize_t recvfrom(int fd, void *bytes, size_t length, int flags, struct sockaddr *from,
                             socklen_t *from_length)
{
    ssize_t (*next)(int, void *, size_t, int, struct sockaddr *, socklen_t *) =
        dlsym(RTLD_NEXT, "recvfrom");
    count();
    return next(fd, bytes, length, flags, from, from_length);
}

SEEN_BY_ALL ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at)
{
    ssize_t (*next)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
    count();
    return next(fd, bytes, length, at);
}
