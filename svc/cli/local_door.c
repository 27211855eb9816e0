/* Finds the Unix socket of a service on this host by its endpoint. Owns nothing. The address on
 * which the service listens is compared with the endpoint, so that a command never connects to
 * another service on the host. */
#include "svc/cli/local_door.h"

#include "svc/base/cleanup.h"
#include "svc/base/clock.h"
#include "svc/cli/cli.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Time to connect and exchange Hello and Welcome. A stopped service must not delay a command that
 * is meant for another service, so the time is short. */
#define DOOR_NS NS_PER_S

/* Returns the address without its port, or "" for a socket that listens on all addresses. */
static const char *bare_text(const struct endpoint_address *a, char text[INET6_ADDRSTRLEN])
{
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&a->socket;
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&a->socket;
    bool is_v6 = a->socket.ss_family == AF_INET6;
    if (is_v6 ? IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr) : v4->sin_addr.s_addr == INADDR_ANY)
        return "";
    return inet_ntop(a->socket.ss_family, is_v6 ? (const void *)&v6->sin6_addr : &v4->sin_addr,
                     text, INET6_ADDRSTRLEN);
}

/* Returns whether the address belongs to this host, which is the case if a socket can be bound
 * to it. */
static bool is_of_this_host(const struct endpoint_address *a)
{
    struct sockaddr_storage any_port = a->socket;
    _cleanup_fd_ int fd = socket(a->socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (a->socket.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&any_port)->sin6_port = 0;
    else
        ((struct sockaddr_in *)&any_port)->sin_port = 0;
    return fd >= 0 && bind(fd, (const struct sockaddr *)&any_port, a->bytes) == 0;
}

static bool is_reached_at(const struct endpoint_address *listening,
                          const struct endpoint_address *meant)
{
    char texts[2][INET6_ADDRSTRLEN];
    const char *listens = bare_text(listening, texts[0]);
    return *listens ? strcmp(listens, bare_text(meant, texts[1])) == 0 : is_of_this_host(meant);
}

static bool is_meant(const struct endpoint *meant, const char *listen, uint64_t deadline_ns)
{
    struct endpoint listening;
    struct endpoint_addresses theirs, ours;
    struct err err;
    if (endpoint_parse(listen, &listening, &err) < 0 || listening.port != meant->port)
        return false;
    if (strcmp(listening.host, meant->host) == 0)
        return true;
    if (endpoint_resolve(&listening, deadline_ns, &theirs, &err) < 0 ||
        endpoint_resolve(meant, deadline_ns, &ours, &err) < 0)
        return false;
    for (uint32_t i = 0; i < theirs.count; i++)
        for (uint32_t j = 0; j < ours.count; j++)
            if (is_reached_at(&theirs.list[i], &ours.list[j]))
                return true;
    return false;
}

static int greet(const struct endpoint *meant, struct channel *channel, uint64_t deadline_ns)
{
    envelope *welcome;
    struct err err;
    int error = channel_hello(channel, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, "gradpool", deadline_ns,
                              &welcome, &err);
    if (error < 0)
        return error;
    bool is_it = is_meant(meant, welcome->welcome->listen, deadline_ns);
    gradpool__wire__envelope__free_unpacked(welcome, NULL);
    return is_it ? 0 : -ENXIO;
}

int local_door_open(const struct endpoint *endpoint, const char *path, struct channel **ret_channel)
{
    uint64_t deadline_ns = clock_now_ns() + DOOR_NS;
    struct endpoint door;
    struct channel *channel;
    struct err err;
    int fd;
    int error = endpoint_parse(path, &door, &err);
    if (error == 0 && !door.is_unix)
        error = -EINVAL;
    if (error == 0)
        error = endpoint_connect(&door, deadline_ns, &fd, &err);
    if (error < 0)
        return error;
    error = channel_create(fd, &channel);
    if (error < 0) {
        close(fd);
        return error;
    }
    error = greet(endpoint, channel, deadline_ns);
    if (error < 0)
        channel_destroy(channel);
    else
        *ret_channel = channel;
    return error;
}

int local_door_open_default(const struct endpoint *endpoint, struct channel **ret_channel)
{
    char state_dir[PATH_MAX], path[PATH_MAX + 16];
    const char *named = getenv("GRADPOOL_STATE_DIR");
    snprintf(path, sizeof path, "%s/control.sock",
             named && *named ? named : cli_state_dir_default(state_dir, sizeof state_dir));
    return local_door_open(endpoint, path, ret_channel);
}
