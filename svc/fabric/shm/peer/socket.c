/* Abstract Unix sockets of type SEQPACKET: one packet contains one message and its descriptors.
 * Owns no descriptor after a call. Never blocks on a peer, and never leaks a peer's descriptor. */
#include "svc/fabric/shm/peer/socket.h"

#include "svc/base/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

/* The queue is short, so that a worker does not wait behind many unknown callers (T7). */
#define BACKLOG 256
#define CONNECT_WAIT_US 500000

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* since Linux 6.5 */
#endif

static int socket_parse(const char *address, struct sockaddr_un *ret_name, socklen_t *ret_bytes)
{
    size_t length = strlen(address);
    struct sockaddr_un name = {.sun_family = AF_UNIX};

    if (length < 2 || address[0] != '@' || length > sizeof name.sun_path ||
        length >= FABRIC_ADDRESS_BYTES_MAX)
        return -EINVAL;
    /* the first byte, 0, makes the name abstract */
    memcpy(name.sun_path + 1, address + 1, length - 1);
    *ret_name = name;
    *ret_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    return 0;
}

static int socket_open(const char *address, struct sockaddr_un *ret_name, socklen_t *ret_bytes)
{
    int error = socket_parse(address, ret_name, ret_bytes);

    if (error < 0)
        return error;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return fd < 0 ? -errno : fd;
}

int shm_socket_listen(const char *address, int *ret_fd)
{
    struct sockaddr_un name;
    socklen_t bytes;
    _cleanup_fd_ int fd = socket_open(address, &name, &bytes);

    if (fd < 0)
        return fd;
    if (bind(fd, (struct sockaddr *)&name, bytes) < 0 || listen(fd, BACKLOG) < 0)
        return -errno;
    *ret_fd = take_fd(&fd);
    return 0;
}

int shm_socket_accept(int listener, int *ret_fd)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

/* Connects. If the queue is full, waits for a short time and tries again, because other callers may
 * fill the queue faster than the lane accepts connections. */
static int socket_connect_in_turn(int fd, const struct sockaddr_un *name, socklen_t bytes)
{
    static const struct timeval moment = {.tv_usec = CONNECT_WAIT_US};
    int flags = fcntl(fd, F_GETFL);

    if (connect(fd, (const struct sockaddr *)name, bytes) == 0)
        return 0;
    if (errno != EAGAIN || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &moment, sizeof moment) < 0 ||
        fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0)
        return -errno;
    int error = connect(fd, (const struct sockaddr *)name, bytes) < 0 ? -errno : 0;
    return fcntl(fd, F_SETFL, flags) < 0 ? -errno : error;
}

int shm_socket_connect(const char *address, int *ret_fd)
{
    struct sockaddr_un name;
    socklen_t bytes;
    _cleanup_fd_ int fd = socket_open(address, &name, &bytes);

    if (fd < 0)
        return fd;
    int error = socket_connect_in_turn(fd, &name, bytes);
    if (error < 0)
        return error;
    *ret_fd = take_fd(&fd);
    return 0;
}

/* Opens a pidfd. SO_PEERPIDFD always refers to the process that has connected. A pidfd opened by
 * the process number may refer to a later process with the same number; in this case, or without a
 * pidfd, only the close of the socket shows the end of the peer. */
static int socket_peer_pidfd(int fd, int pid, int *ret_pidfd)
{
    int pidfd = -1;
    socklen_t bytes = sizeof pidfd;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &bytes) < 0 && pid > 0) {
        pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        if (pidfd < 0 && errno != ENOSYS && errno != EPERM)
            return errno == ESRCH ? -ENOTCONN : -errno;
    }
    *ret_pidfd = pidfd;
    return 0;
}

int shm_socket_peer(int fd, struct shm_peer *ret_peer)
{
    struct ucred credentials;
    socklen_t bytes = sizeof credentials;
    int pidfd = -1;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) < 0)
        return -errno;
    int error = socket_peer_pidfd(fd, credentials.pid, &pidfd);
    if (error < 0)
        return error;
    *ret_peer = (struct shm_peer){credentials.pid, credentials.uid, pidfd};
    return 0;
}

union control {
    char bytes[CMSG_SPACE(SHM_PACKET_FDS_MAX * sizeof(int))];
    struct cmsghdr alignment;
};

static void packet_attach(struct msghdr *message, union control *control, const int *fds,
                          size_t count)
{
    memset(control, 0, sizeof *control);
    message->msg_control = control;
    message->msg_controllen = CMSG_SPACE(count * sizeof(int));

    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(header), fds, count * sizeof(int));
}

int shm_packet_send(int fd, const struct shm_packet *packet, const int *fds, size_t fds_count)
{
    struct shm_packet whole = *packet;
    struct iovec part = {&whole, sizeof whole};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    union control control;

    assert(fds_count <= SHM_PACKET_FDS_MAX);
    whole.magic = SHM_MAGIC;
    if (fds_count > 0)
        packet_attach(&message, &control, fds, fds_count);
    if (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
        return 0;
    /* ETOOMANYREFS: too many descriptors are in transit until the peer receives some. */
    return errno == EAGAIN || errno == ETOOMANYREFS ? -EAGAIN : -ECONNRESET;
}

static size_t packet_detach(struct msghdr *message, int *ret_fds)
{
    size_t count = 0;

    for (struct cmsghdr *h = CMSG_FIRSTHDR(message); h; h = CMSG_NXTHDR(message, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(ret_fds, CMSG_DATA(h), count * sizeof(int));
    }
    return count; /* the buffer has room for SHM_PACKET_FDS_MAX; the kernel closes any others */
}

/* Receives a packet. If a peer closes its socket before it has read all packets of this process,
 * the kernel reports an error once, before it returns the packets of the peer, which are valid. */
static int packet_receive(int fd, struct msghdr *message)
{
    ssize_t n = recvmsg(fd, message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (n < 0 && errno == ECONNRESET)
        n = recvmsg(fd, message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? -EAGAIN : -ECONNRESET;
    return (int)n;
}

/* Returns whether this process has no free descriptor. The kernel then drops the descriptors of a
 * packet. */
static bool packet_has_no_descriptor(int fd)
{
    int probe = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (probe >= 0)
        close(probe);
    return probe < 0;
}

int shm_packet_has_room(int fd)
{
    int probes[SHM_PACKET_FDS_MAX], count = 0;
    while (count < SHM_PACKET_FDS_MAX && (probes[count] = fcntl(fd, F_DUPFD_CLOEXEC, 0)) >= 0)
        count++;
    shm_fds_close(probes, (size_t)count);
    return count == SHM_PACKET_FDS_MAX ? 0 : -EMFILE;
}

int shm_packet_receive(int fd, struct shm_packet *ret_packet, int ret_fds[SHM_PACKET_FDS_MAX],
                       size_t *ret_fds_count)
{
    struct shm_packet packet = {0};
    struct iovec part = {&packet, sizeof packet};
    union control control;
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    int n = packet_receive(fd, &message);

    if (n < 0)
        return n;
    size_t count = packet_detach(&message, ret_fds);
    if (n == 0 && count == 0)
        /* the peer has closed its end; an empty packet could still contain descriptors */
        return -EPIPE;
    if (n != sizeof packet || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) ||
        packet.magic != SHM_MAGIC || packet.ticket_bytes > FABRIC_TICKET_BYTES_MAX) {
        bool is_full = (message.msg_flags & MSG_CTRUNC) && packet_has_no_descriptor(fd);
        shm_fds_close(ret_fds, count);
        return is_full ? -EMFILE : -EBADMSG;
    }
    *ret_packet = packet;
    *ret_fds_count = count;
    return 0;
}

void shm_fds_close(const int *fds, size_t fds_count)
{
    for (size_t i = 0; i < fds_count; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}
