/* Defines the functions with which libfabric moves bytes over sockets. A program's own definition
 * of such a function replaces the C library's definition in every library that the program uses.
 * Owns the table of guarded sockets. For all other sockets the functions behave as usual, and errno
 * has the value from the kernel (README, O12). */
/* with this macro the C library's headers would define inline functions of the same names */
#undef _FORTIFY_SOURCE
#include "svc/fabric/ofi/door/guard.h"

#include "svc/base/log.h"
#include "svc/fabric/ofi/door/door.h"
#include "svc/fabric/ofi/door/tcp_wire.h"

#include <dlfcn.h>
#include <errno.h>
#include <rdma/fabric.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))
/* The kernel's default limit of descriptors. Pages of the table are allocated only when used. */
#define GUARDS_MAX (1 << 20)

struct guard {
    struct ofi_door *door; /* the descriptor is a listener; NULL: a connection */
    struct tcp_wire wire;
    bool is_broken; /* each read by the provider returns ECONNRESET */
};

/* Only the thread of the socket's fabric uses the socket and its guard. */
static _Atomic(struct guard *) guards[GUARDS_MAX];

static struct guard *guard_of(int fd)
{
    if (fd < 0 || fd >= GUARDS_MAX)
        return NULL;
    return atomic_load_explicit(&guards[fd], memory_order_relaxed);
}

static int guard_begin(int fd, struct ofi_door *door, uint64_t message_bytes_max)
{
    if (fd < 0 || fd >= GUARDS_MAX)
        return -EMFILE;
    struct guard *g = malloc(sizeof(*g));
    if (g == NULL)
        return -ENOMEM;
    tcp_wire_init(&g->wire, message_bytes_max);
    g->door = door;
    g->is_broken = false;
    atomic_store_explicit(&guards[fd], g, memory_order_relaxed);
    return 0;
}

int ofi_guard_begin(int fd, uint64_t message_bytes_max)
{
    return guard_begin(fd, NULL, message_bytes_max);
}

int ofi_guard_listener(int fd, struct ofi_door *door) { return guard_begin(fd, door, 0); }

void ofi_guard_end(int fd)
{
    struct guard *g = guard_of(fd);
    if (g == NULL)
        return;
    atomic_store_explicit(&guards[fd], NULL, memory_order_relaxed);
    free(g);
}

/* Makes the provider detect a reset of the connection. */
static ssize_t guard_break(struct guard *g)
{
    g->is_broken = true;
    errno = ECONNRESET;
    return -1;
}

typedef int follow_fn(struct tcp_wire *w, const void *bytes, size_t count);

static ssize_t guard_follow(struct guard *g, follow_fn *follow, const struct iovec *parts,
                            size_t parts_count, ssize_t count)
{
    size_t left = count > 0 ? (size_t)count : 0;
    for (size_t i = 0; i < parts_count && left > 0; i++) {
        size_t here = left < parts[i].iov_len ? left : parts[i].iov_len;
        if (follow(&g->wire, parts[i].iov_base, here) < 0)
            return guard_break(g);
        left -= here;
    }
    return count;
}

/* --- calls of libfabric ---------------------------------------------------------------------- */

EXPORTED ssize_t recv(int fd, void *bytes, size_t count, int flags)
{
    struct guard *g = guard_of(fd);
    if (g != NULL && g->is_broken)
        return guard_break(g);
    ssize_t came = recvfrom(fd, bytes, count, flags, NULL, NULL);
    if (g == NULL || flags & MSG_PEEK)
        return came;
    struct iovec part = {bytes, count};
    return guard_follow(g, tcp_wire_came, &part, 1, came);
}

EXPORTED ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    struct guard *g = guard_of(fd);
    if (g != NULL && g->is_broken)
        return guard_break(g);
    ssize_t came = syscall(SYS_recvmsg, fd, message, flags);
    if (g == NULL || flags & (MSG_PEEK | MSG_ERRQUEUE))
        return came;
    return guard_follow(g, tcp_wire_came, message->msg_iov, message->msg_iovlen, came);
}

EXPORTED ssize_t send(int fd, const void *bytes, size_t count, int flags)
{
    struct guard *g = guard_of(fd);
    ssize_t went = sendto(fd, bytes, count, flags, NULL, 0);
    if (g == NULL)
        return went;
    struct iovec part = {(void *)(uintptr_t)bytes, count};
    return guard_follow(g, tcp_wire_went, &part, 1, went);
}

EXPORTED ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    struct guard *g = guard_of(fd);
    ssize_t went = syscall(SYS_sendmsg, fd, message, flags);
    if (g == NULL)
        return went;
    return guard_follow(g, tcp_wire_went, message->msg_iov, message->msg_iovlen, went);
}

EXPORTED int listen(int fd, int backlog)
{
    struct guard *g = guard_of(fd);
    return g != NULL && g->door != NULL ? 0 : (int)syscall(SYS_listen, fd, backlog);
}

EXPORTED int accept(int fd, struct sockaddr *address, socklen_t *bytes)
{
    struct guard *g = guard_of(fd);
    return g != NULL && g->door != NULL ? ofi_door_take(g->door) : accept4(fd, address, bytes, 0);
}

/* --- versions -------------------------------------------------------------------------------- */

static const uint32_t known_versions[] = {FI_VERSION(1, 17), FI_VERSION(2, 1)};

bool ofi_guard_knows(uint32_t libfabric_version)
{
    for (size_t i = 0; i < sizeof known_versions / sizeof *known_versions; i++)
        if (known_versions[i] == libfabric_version)
            return true;
    return false;
}

static bool is_ours(const char *name, void *call) { return dlsym(RTLD_DEFAULT, name) == call; }

int ofi_guard_check(void)
{
    if (is_ours("recv", (void *)recv) && is_ours("recvmsg", (void *)recvmsg) &&
        is_ours("send", (void *)send) && is_ours("sendmsg", (void *)sendmsg) &&
        is_ours("listen", (void *)listen) && is_ours("accept", (void *)accept))
        return 0;
    log_error(
        "transport=ofi error=\"libfabric receives past this program's own recv() and accept()\" "
        "next=\"preload no library that defines recv(), and build gradpool with its meson.build\"");
    return -ENOSYS;
}
