/* Chooses the address under which other processes connect to the service, from an option or from a
 * listener. */
#include "svc/coordinator/peer/advertise.h"

#include "svc/base/cleanup.h"
#include "svc/base/clock.h"
#include "svc/base/log.h"
#include "svc/coordinator/service.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOOKUP_NS (2 * NS_PER_S)

/* Finds the source address of the default route. A datagram socket is connected to an address that
 * is reserved for documentation. No packet is sent. */
static int default_route_address(char *buffer, size_t buffer_bytes)
{
    _cleanup_fd_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in far = {.sin_family = AF_INET, .sin_port = htons(9)};
    inet_pton(AF_INET, "192.0.2.1", &far.sin_addr);
    if (fd < 0 || connect(fd, (struct sockaddr *)&far, sizeof far) < 0)
        return -errno;
    return endpoint_local_address(NULL, fd, buffer, buffer_bytes);
}

static int find_host(const struct service *s, char *buffer, size_t buffer_bytes, struct err *err)
{
    const char *interface_name = s->options->interface_name;
    int error = interface_name ? endpoint_local_address(interface_name, -1, buffer, buffer_bytes)
                               : default_route_address(buffer, buffer_bytes);
    return error < 0 ? err_set(err, error,
                               "gradpool serve cannot find the address at which other hosts reach "
                               "this host (%s): give the address with --advertise",
                               err_text(error))
                     : 0;
}

static bool is_loopback_name(const char *host, char address[INET6_ADDRSTRLEN])
{
    return endpoint_name_is_loopback(host, clock_now_ns() + LOOKUP_NS, address, INET6_ADDRSTRLEN);
}

/* Chooses the address of local lanes. Debian resolves a host's own name to 127.0.1.1, to which
 * other hosts cannot connect. So a name with a loopback address is not used. */
static void choose_data_host(struct service *s, const char *host)
{
    char loopback[INET6_ADDRSTRLEN], *found = s->identity->data_host;
    snprintf(s->identity->data_host, sizeof s->identity->data_host, "%s", host);
    if (!is_loopback_name(host, loopback))
        return;
    if (default_route_address(found, sizeof s->identity->data_host) < 0)
        snprintf(found, sizeof s->identity->data_host, "%s", host);
    log_warn("host name '%s' is %s on this host, an address that other hosts cannot reach: lanes "
             "listen on %s; give another address with --advertise, or correct /etc/hosts",
             host, loopback, found);
}

/* Returns whether only this host can connect to the service, because the host name in --listen is
 * resolved to a loopback address. */
static bool listens_in_vain(const struct service *s)
{
    const struct endpoint *e = &s->door->tcp->endpoint;
    char loopback[INET6_ADDRSTRLEN];
    if (!is_loopback_name(e->host, loopback))
        return false;
    log_warn("host name '%s' of --listen is %s on this host, so other hosts cannot connect; if "
             "they should, give an address, or gradpool://0.0.0.0:%u",
             e->host, loopback, e->port);
    return true;
}

int advertise_choose(struct service *s, struct err *err)
{
    struct endpoint shown = s->door->tcp->endpoint;
    bool is_any = strcmp(shown.host, "0.0.0.0") == 0 || strcmp(shown.host, "::") == 0;
    if (s->options->advertise)
        snprintf(shown.host, sizeof shown.host, "%s", s->options->advertise);
    else if (is_any && find_host(s, shown.host, sizeof shown.host, err) < 0)
        return err->code;
    endpoint_format(&shown, s->identity->endpoint_url, sizeof s->identity->endpoint_url);
    /* In a service for this host alone each lane chooses its own address. */
    bool is_local = endpoint_is_loopback(&s->door->tcp->endpoint) || listens_in_vain(s);
    if (s->options->advertise || !is_local)
        choose_data_host(s, shown.host);
    return 0;
}
