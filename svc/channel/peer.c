/* The peer of a control connection: its name, its silence, and the options of its TCP socket. Owns
 * nothing. */
#include "svc/base/clock.h"
#include "svc/channel/internal.h"
#include "svc/endpoint/tcp_alive.h"
#include "svc/endpoint/tcp_end.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* Number of unanswered probes after which the kernel closes a connection, if the caller has not
 * done so. */
#define KEEPALIVE_PROBES_WATCHED 9
/* Number of unanswered probes after which a peer whose receive buffer is full counts as silent. A
 * single lost probe does not count. */
#define WINDOW_PROBES 2

static void describe_unix_peer(struct channel *ch)
{
    int pid;
    uint32_t uid;
    if (channel_credentials(ch, &pid, &uid) == 0)
        snprintf(ch->peer, sizeof(ch->peer), "unix pid %d uid %u", pid, uid);
    else
        snprintf(ch->peer, sizeof(ch->peer), "unix peer");
}

void channel_describe_peer(struct channel *ch, int family)
{
    struct sockaddr_storage address = {0};
    socklen_t address_bytes = sizeof(address);
    char host[INET6_ADDRSTRLEN];
    if (family == AF_UNIX) {
        describe_unix_peer(ch);
    } else if (getpeername(ch->fd, (struct sockaddr *)&address, &address_bytes) < 0) {
        snprintf(ch->peer, sizeof(ch->peer), "peer that has already left");
    } else if (family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address;
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
        snprintf(ch->peer, sizeof(ch->peer), "[%s]:%u", host, ntohs(v6->sin6_port));
    } else {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address;
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
        snprintf(ch->peer, sizeof(ch->peer), "%s:%u", host, ntohs(v4->sin_port));
    }
}

const char *channel_bare_text(const struct channel *ch, const char *text)
{
    size_t bytes = strlen(ch->peer);
    bool begins = strncmp(text, ch->peer, bytes) == 0 && strncmp(text + bytes, ": ", 2) == 0;
    return begins ? text + bytes + 2 : text;
}

static void channel_set_option(int fd, int level, int option, int value)
{
    /* Errors are ignored: without the option the connection is only slower, or detects a dead peer
     * later. */
    (void)setsockopt(fd, level, option, &value, sizeof(value));
}

void channel_tune_tcp(int fd)
{
    channel_set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    tcp_alive_watch(fd);
}

void channel_watch_host(struct channel *ch, unsigned quiet_s)
{
    channel_set_option(ch->fd, IPPROTO_TCP, TCP_KEEPIDLE, (int)quiet_s);
    channel_set_option(ch->fd, IPPROTO_TCP, TCP_KEEPINTVL, (int)quiet_s);
    channel_set_option(ch->fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES_WATCHED);
    /* Turns off the kernel's own limit, which would also close a connection whose peer answers
     * probes but has a full receive buffer. */
    channel_set_option(ch->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
}

/* Returns whether an acknowledgement from the peer's kernel is overdue. While the peer's receive
 * buffer is full, probes become rare, down to one in two minutes, so a long silence alone does not
 * mean a dead peer. */
static bool owes_answer(const struct channel *ch, const struct tcp_info *info, uint32_t silent_ms)
{
    int unsent = 0;
    if (info->tcpi_unacked > 0)
        return info->tcpi_last_data_sent < silent_ms;
    (void)ioctl(ch->fd, SIOCOUTQ, &unsent);
    return unsent == 0 || info->tcpi_probes >= WINDOW_PROBES;
}

uint64_t channel_silent_ns(const struct channel *ch)
{
    struct tcp_info info;
    socklen_t bytes = sizeof info;
    if (getsockopt(ch->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) < 0 ||
        info.tcpi_state != TCP_ESTABLISHED)
        return 0;
    uint32_t silent_ms = info.tcpi_last_ack_recv < info.tcpi_last_data_recv
                             ? info.tcpi_last_ack_recv
                             : info.tcpi_last_data_recv;
    return owes_answer(ch, &info, silent_ms) ? silent_ms * NS_PER_MS : 0;
}

enum channel_end channel_end_of(const struct channel *ch, int error)
{
    if (error == EPIPE)
        /* the peer has closed, and its kernel has reset later bytes of this side */
        return CHANNEL_CLOSED;
    return error == ECONNRESET && tcp_end_is_acknowledged(ch->fd) ? CHANNEL_RESET
                                                                  : CHANNEL_ENDED_OTHERWISE;
}

int channel_credentials(const struct channel *ch, int *ret_pid, uint32_t *ret_uid)
{
    struct sockaddr_storage address = {0};
    socklen_t address_bytes = sizeof(address);
    struct ucred who;
    socklen_t who_bytes = sizeof(who);
    if (getsockname(ch->fd, (struct sockaddr *)&address, &address_bytes) < 0)
        return -errno;
    if (address.ss_family != AF_UNIX)
        /* SO_PEERCRED also succeeds on TCP, but returns meaningless values */
        return -ENOTSUP;
    if (getsockopt(ch->fd, SOL_SOCKET, SO_PEERCRED, &who, &who_bytes) < 0)
        return -errno;
    *ret_pid = who.pid;
    *ret_uid = who.uid;
    return 0;
}

bool channel_is_loopback(const struct channel *ch)
{
    struct sockaddr_storage address = {0};
    socklen_t address_bytes = sizeof(address);
    if (getpeername(ch->fd, (struct sockaddr *)&address, &address_bytes) < 0)
        return false;
    if (address.ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)&address)->sin_addr.s_addr) >> 24 == 127;
    if (address.ss_family != AF_INET6)
        return address.ss_family == AF_UNIX;
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)&address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
}
