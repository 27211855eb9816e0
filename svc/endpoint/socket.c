/* Opens sockets that are connected to an endpoint or listen on one. Owns nothing. Each error names
 * the endpoint, the address and the next step. Connecting never looks up a name, because a lookup
 * could exceed the deadline (resolve.c). */
#include "svc/endpoint/endpoint.h"

#include "svc/base/cleanup.h"
#include "svc/base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define LISTEN_BACKLOG 1024
#define UNIX_MODE 0660
#define URL_BYTES (sizeof(((struct endpoint *)0)->host) + 32)
#define ADDRESS_TEXT_BYTES (INET6_ADDRSTRLEN + 32)
#define PLACE_BYTES (URL_BYTES + ADDRESS_TEXT_BYTES)

/* Longest lookup of a listener's host, which is usually an address. */
#define LISTEN_LOOKUP_NS (10 * NS_PER_S)

/* --- addresses ------------------------------------------------------------------------------- */

static int address_host(const struct sockaddr *a, char *buffer, size_t buffer_bytes)
{
    const void *bytes = a->sa_family == AF_INET6
                            ? (const void *)&((const struct sockaddr_in6 *)a)->sin6_addr
                            : (const void *)&((const struct sockaddr_in *)a)->sin_addr;
    return inet_ntop(a->sa_family, bytes, buffer, (socklen_t)buffer_bytes) ? 0 : -errno;
}

static uint16_t address_port(const struct endpoint_address *a)
{
    return ntohs(a->socket.ss_family == AF_INET6
                     ? ((const struct sockaddr_in6 *)&a->socket)->sin6_port
                     : ((const struct sockaddr_in *)&a->socket)->sin_port);
}

static void address_set_port(struct endpoint_address *a, uint16_t port)
{
    if (a->socket.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&a->socket)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)&a->socket)->sin_port = htons(port);
}

static const char *address_format(const struct endpoint_address *a, char *buffer,
                                  size_t buffer_bytes)
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (a->socket.ss_family == AF_UNIX)
        return ((const struct sockaddr_un *)&a->socket)->sun_path;
    (void)address_host((const struct sockaddr *)&a->socket, host, sizeof(host));
    bool is_v6 = a->socket.ss_family == AF_INET6;
    snprintf(buffer, buffer_bytes, is_v6 ? "[%s]:%u" : "%s:%u", host, address_port(a));
    return buffer;
}

static bool is_link_local(const struct sockaddr *a)
{
    return a->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

static bool is_usable(const struct ifaddrs *i, const char *interface_name)
{
    return i->ifa_addr != NULL && strcmp(i->ifa_name, interface_name) == 0 &&
           (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6) &&
           !is_link_local(i->ifa_addr);
}

/* Finds an address of the interface in `family`; AF_UNSPEC: IPv4 if possible, otherwise IPv6.
 * Unlike binding to the device, this needs no privilege. */
static int interface_address(const char *interface_name, int family,
                             struct endpoint_address *ret_address)
{
    struct ifaddrs *all;
    const struct ifaddrs *best = NULL;
    if (getifaddrs(&all) < 0)
        return -errno;
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        if (!is_usable(i, interface_name))
            continue;
        int found = i->ifa_addr->sa_family;
        if (family != AF_UNSPEC && found != family)
            continue;
        if (best == NULL || (found == AF_INET && best->ifa_addr->sa_family != AF_INET))
            best = i;
    }
    if (best != NULL) {
        bool is_v6 = best->ifa_addr->sa_family == AF_INET6;
        *ret_address = (struct endpoint_address){0};
        ret_address->bytes = is_v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
        memcpy(&ret_address->socket, best->ifa_addr, ret_address->bytes);
    }
    freeifaddrs(all);
    if (best != NULL)
        return 0;
    return if_nametoindex(interface_name) == 0 ? -ENODEV : -EADDRNOTAVAIL;
}

/* --- connecting ------------------------------------------------------------------------------ */

static int wait_connected(int fd, uint64_t deadline_ns)
{
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    for (;;) {
        uint64_t now_ns = clock_now_ns();
        int ready = poll(&wait, 1, clock_poll_ms(deadline_ns, now_ns));
        if (ready > 0)
            break;
        if (ready < 0 && errno != EINTR)
            return -errno;
        if (clock_now_ns() >= deadline_ns)
            return -ETIMEDOUT;
    }
    int error = 0;
    socklen_t error_bytes = sizeof(error);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_bytes) < 0)
        return -errno;
    return -error;
}

/* Connects to a Unix socket with a blocking call that has a timeout. A non-blocking connect to a
 * socket with a full queue would return EAGAIN, and no event would report when to try again. */
static int connect_unix(int fd, const struct endpoint_address *a, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t now_ns = clock_now_ns();
        if (now_ns >= deadline_ns)
            return -ETIMEDOUT;
        int ms = clock_poll_ms(deadline_ns, now_ns);
        struct timeval limit = {.tv_sec = ms < 0 ? 0 : ms / 1000,
                                .tv_usec = ms < 0 ? 0 : ms % 1000 * 1000};
        if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0)
            return -errno;
        if (connect(fd, (const struct sockaddr *)&a->socket, a->bytes) == 0)
            break;
        if (errno != EINTR && errno != EAGAIN)
            return -errno;
    }
    struct timeval none = {0};
    return setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof(none)) < 0 ? -errno : 0;
}

static int connect_tcp(int fd, const struct endpoint_address *a, uint64_t deadline_ns)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)&a->socket, a->bytes) == 0)
        return 0;
    if (errno != EINPROGRESS && errno != EINTR)
        return -errno;
    return wait_connected(fd, deadline_ns);
}

static int endpoint_open_socket(int family, const struct endpoint_slot *slot)
{
    if (slot == NULL) {
        int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        return fd < 0 ? -errno : fd;
    }
    pthread_mutex_lock(slot->lock);
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int error = fd < 0 ? -errno : fd;
    if (fd >= 0)
        *slot->fd = fd;
    pthread_mutex_unlock(slot->lock);
    return error;
}

static void endpoint_close_socket(int fd, const struct endpoint_slot *slot)
{
    if (slot == NULL) {
        close(fd);
        return;
    }
    pthread_mutex_lock(slot->lock);
    *slot->fd = -1;
    close(fd);
    pthread_mutex_unlock(slot->lock);
}

static int connect_address(const struct endpoint_address *a, uint64_t deadline_ns,
                           const struct endpoint_slot *slot, int *ret_fd)
{
    int family = a->socket.ss_family;
    int fd = endpoint_open_socket(family, slot);
    if (fd < 0)
        return fd;
    int error =
        family == AF_UNIX ? connect_unix(fd, a, deadline_ns) : connect_tcp(fd, a, deadline_ns);
    if (error < 0) {
        endpoint_close_socket(fd, slot);
        return error;
    }
    *ret_fd = fd;
    return 0;
}

static const char *next_step(int code, bool is_unix)
{
    switch (code) {
    case -ECONNREFUSED:
        return is_unix ? "the socket file is stale: is `gradpool serve` running?"
                       : "is `gradpool serve` running there, on that port?";
    case -ENOENT: return "is `gradpool serve` running with this path?";
    case -ETIMEDOUT: return "is the address right, and does a firewall let the port through?";
    case -EHOSTUNREACH: return "is the address right, and is this host on that network?";
    case -EACCES: return "may this user write to the socket file?";
    case -EMFILE: return "raise the limit of open files (RLIMIT_NOFILE): ulimit -n";
    case -ENFILE: return "raise the limit of open files of the whole host (fs.file-max)";
    default: return "check the endpoint (GRADPOOL_ENDPOINT)";
    }
}

/* Writes the endpoint, followed by the address that was tried unless the endpoint contains it. */
static const char *say_place(const struct endpoint *e, const struct endpoint_address *tried,
                             char ret_text[PLACE_BYTES])
{
    char buffer[ADDRESS_TEXT_BYTES];
    endpoint_format(e, ret_text, URL_BYTES);
    const char *address = address_format(tried, buffer, sizeof(buffer));
    size_t used = strlen(ret_text);
    if (!strstr(ret_text, address))
        snprintf(ret_text + used, PLACE_BYTES - used, " (%s)", address);
    return ret_text;
}

static int connect_error(const struct endpoint *e, const struct endpoint_address *tried, int code,
                         struct err *err)
{
    char text[PLACE_BYTES];
    if (code == -ENETUNREACH)
        code = -EHOSTUNREACH;
    return err_set(err, code, "cannot reach %s: %s; %s", say_place(e, tried, text), err_text(code),
                   next_step(code, e->is_unix));
}

/* Returns the deadline for the first of `addresses_left` addresses. If an address silently drops
 * packets, time must be left for the next address. */
static uint64_t share_deadline(uint64_t deadline_ns, unsigned addresses_left)
{
    uint64_t now_ns = clock_now_ns();
    if (deadline_ns == UINT64_MAX || deadline_ns <= now_ns)
        return deadline_ns;
    return now_ns + (deadline_ns - now_ns) / addresses_left;
}

int endpoint_connect_to(const struct endpoint *e, const struct endpoint_addresses *addresses,
                        uint64_t deadline_ns, const struct endpoint_slot *slot, int *ret_fd,
                        struct err *err)
{
    int error = -ENOENT;
    if (!e->is_unix && e->port == 0)
        return err_set(err, -EINVAL,
                       "endpoint gradpool://%s:0: port 0 cannot be connected to; give the port "
                       "that gradpool serve prints",
                       e->host);
    for (uint32_t i = 0; i < addresses->count; i++) {
        uint64_t share_ns = share_deadline(deadline_ns, addresses->count - i);
        error = connect_address(&addresses->list[i], share_ns, slot, ret_fd);
        if (error == 0)
            return 0;
    }
    return connect_error(e, &addresses->list[addresses->count - 1], error, err);
}

int endpoint_connect(const struct endpoint *e, uint64_t deadline_ns, int *ret_fd, struct err *err)
{
    struct endpoint_addresses addresses;
    int error = endpoint_resolve(e, deadline_ns, &addresses, err);
    return error < 0 ? error : endpoint_connect_to(e, &addresses, deadline_ns, NULL, ret_fd, err);
}

/* --- listening ------------------------------------------------------------------------------- */

static const char *unix_path(const struct endpoint_address *a)
{
    return ((const struct sockaddr_un *)&a->socket)->sun_path;
}

static int listen_address(const struct endpoint_address *a, int *ret_fd)
{
    int family = a->socket.ss_family;
    int yes = 1, no = 0;
    _cleanup_fd_ int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (family != AF_UNIX && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) < 0)
        return -errno;
    /* A socket on [::] accepts IPv4, too, independent of the host's default. */
    if (family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no)) < 0)
        return -errno;
    /* set before bind(), after which other processes can connect */
    if (family == AF_UNIX && fchmod(fd, UNIX_MODE) < 0)
        return -errno;
    if (bind(fd, (const struct sockaddr *)&a->socket, a->bytes) < 0)
        return -errno;
    /* The umask may have removed permissions; this call restores them. */
    if (family == AF_UNIX && chmod(unix_path(a), UNIX_MODE) < 0)
        return -errno;
    if (listen(fd, LISTEN_BACKLOG) < 0)
        return -errno;
    *ret_fd = take_fd(&fd);
    return 0;
}

static int listen_error(const struct endpoint *e, const struct endpoint_address *tried, int code,
                        struct err *err)
{
    char text[PLACE_BYTES];
    const char *advice = "check the address";
    if (code == -EADDRINUSE)
        advice = e->is_unix ? "is another `gradpool serve` running? stop it or use another path"
                            : "is another `gradpool serve` running? stop it or use another port";
    else if (code == -EACCES)
        advice = e->is_unix ? "may this user write to that directory?"
                            : "ports below 1024 need privileges; use another";
    else if (code == -EADDRNOTAVAIL)
        advice = "this host has no such address";
    else if (code == -ENOENT)
        advice = "make the directory first";
    return err_set(err, code, "cannot listen on %s: %s; %s", say_place(e, tried, text),
                   err_text(code), advice);
}

/* Removes a socket file without a listener. Other files are kept. */
static int remove_stale(const struct endpoint_address *a)
{
    const char *path = unix_path(a);
    struct stat status;
    if (lstat(path, &status) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISSOCK(status.st_mode))
        return -ENOTSOCK;
    _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)&a->socket, a->bytes) == 0 || errno != ECONNREFUSED)
        return -EADDRINUSE;
    return unlink(path) < 0 && errno != ENOENT ? -errno : 0;
}

static int listen_unix(const struct endpoint *e, const struct endpoint_address *a, int *ret_fd,
                       struct err *err)
{
    int error = listen_address(a, ret_fd);
    if (error == -EADDRINUSE) {
        error = remove_stale(a);
        if (error == -ENOTSOCK)
            return err_set(err, -EADDRINUSE,
                           "cannot listen on gradpool+unix://%s: the path is a file other than a "
                           "socket; remove the file, or use another path",
                           e->host);
        if (error == 0)
            error = listen_address(a, ret_fd);
    }
    return error == 0 ? 0 : listen_error(e, a, error, err);
}

/* Replaces an unspecified host (0.0.0.0, [::]) by the interface's address. Any other host must
 * be that address. */
static int narrow_to_interface(const struct endpoint *e, const char *interface_name,
                               struct endpoint_address *a, struct err *err)
{
    char given[INET6_ADDRSTRLEN] = "", owned[INET6_ADDRSTRLEN] = "";
    struct endpoint_address of_interface;
    int error = interface_address(interface_name, a->socket.ss_family, &of_interface);
    if (error < 0)
        return err_set(
            err, error, "cannot listen on interface '%s': %s; see `ip address`", interface_name,
            error == -ENODEV ? "this host has no such interface" : "the interface has no address");
    (void)address_host((const struct sockaddr *)&a->socket, given, sizeof(given));
    (void)address_host((const struct sockaddr *)&of_interface.socket, owned, sizeof(owned));
    if (strcmp(given, "0.0.0.0") != 0 && strcmp(given, "::") != 0 && strcmp(given, owned) != 0)
        return err_set(err, -EADDRNOTAVAIL,
                       "cannot listen on %s through interface '%s': the interface has address %s; "
                       "give that address, or 0.0.0.0",
                       e->host, interface_name, owned);
    *a = of_interface;
    address_set_port(a, e->port);
    return 0;
}

static int write_back(int fd, struct endpoint *e, bool host_too)
{
    struct endpoint_address a = {.bytes = sizeof(a.socket)};
    if (getsockname(fd, (struct sockaddr *)&a.socket, &a.bytes) < 0)
        return -errno;
    e->port = address_port(&a);
    return host_too ? address_host((const struct sockaddr *)&a.socket, e->host, sizeof(e->host))
                    : 0;
}

static int listen_any(struct endpoint *e, const struct endpoint_addresses *addresses,
                      const char *interface_name, int *ret_fd, struct err *err)
{
    struct endpoint_address a = {0};
    int error = -EADDRNOTAVAIL;
    for (uint32_t i = 0; i < addresses->count; i++) {
        a = addresses->list[i];
        if (interface_name != NULL && (error = narrow_to_interface(e, interface_name, &a, err)) < 0)
            return error;
        error = listen_address(&a, ret_fd);
        /* The next address is tried, because a name may have an address of a family that this host
         * lacks. If the port is in use, no further address is tried. */
        if (error != -EADDRNOTAVAIL && error != -EAFNOSUPPORT)
            break;
    }
    return error == 0 ? 0 : listen_error(e, &a, error, err);
}

int endpoint_listen(struct endpoint *e, const char *interface_name, int *ret_fd, struct err *err)
{
    struct endpoint_addresses addresses;
    int error = endpoint_resolve(e, clock_now_ns() + LISTEN_LOOKUP_NS, &addresses, err);
    if (error < 0)
        return error;
    if (e->is_unix)
        return listen_unix(e, &addresses.list[0], ret_fd, err);
    _cleanup_fd_ int fd = -1;
    error = listen_any(e, &addresses, interface_name, &fd, err);
    if (error < 0)
        return error;
    error = write_back(fd, e, interface_name != NULL);
    if (error < 0)
        return err_set(err, error, "cannot read the port of %s: %s", e->host, err_text(error));
    *ret_fd = take_fd(&fd);
    return 0;
}

int endpoint_local_address(const char *interface_name, int connected_fd, char *buffer,
                           size_t buffer_bytes)
{
    struct endpoint_address a = {.bytes = sizeof(a.socket)};
    if (interface_name != NULL) {
        int error = interface_address(interface_name, AF_UNSPEC, &a);
        if (error < 0)
            return error;
    } else if (getsockname(connected_fd, (struct sockaddr *)&a.socket, &a.bytes) < 0) {
        return -errno;
    }
    /* only processes of this host can connect to a Unix socket */
    if (a.socket.ss_family == AF_UNIX)
        return snprintf(buffer, buffer_bytes, "127.0.0.1") < (int)buffer_bytes ? 0 : -ENOSPC;
    return address_host((const struct sockaddr *)&a.socket, buffer, buffer_bytes);
}
