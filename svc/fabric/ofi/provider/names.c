/* Converts the user's names (addresses, providers, interfaces) to libfabric's structs. Finds
 * sockets and errno values that libfabric does not expose. Has no state. Uses only the provider
 * that the user has named. */
#include "svc/fabric/ofi/provider/names.h"

#include "svc/base/log.h"
#include "svc/base/text.h"
#include "svc/endpoint/endpoint.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API_VERSION FI_VERSION(1, 17)
/* Number of operations that may be posted on a connection at the same time; see types.h. */
#define TX_SIZE_NEEDED 264

/* --- addresses ------------------------------------------------------------------------------- */

static uint16_t port_of(const struct sockaddr_storage *s)
{
    return ntohs(s->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)s)->sin6_port
                                          : ((const struct sockaddr_in *)s)->sin_port);
}

static void port_set(struct sockaddr_storage *s, uint16_t port)
{
    if (s->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)s)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)s)->sin_port = htons(port);
}

static const void *names_host(const struct sockaddr_storage *s, size_t *ret_bytes)
{
    if (s->ss_family == AF_INET6) {
        *ret_bytes = sizeof(struct in6_addr);
        return &((const struct sockaddr_in6 *)s)->sin6_addr;
    }
    *ret_bytes = sizeof(struct in_addr);
    return &((const struct sockaddr_in *)s)->sin_addr;
}

static bool host_is_any(const struct sockaddr_storage *s)
{
    static const uint8_t zero[sizeof(struct in6_addr)];
    size_t bytes;
    const void *host = names_host(s, &bytes);
    return memcmp(host, zero, bytes) == 0;
}

static bool hosts_equal(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    size_t bytes;
    const void *host = names_host(a, &bytes);
    return a->ss_family == b->ss_family && memcmp(host, names_host(b, &bytes), bytes) == 0;
}

static bool addresses_equal(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    return hosts_equal(a, b) && port_of(a) == port_of(b);
}

const char *ofi_address_format(const struct sockaddr_storage *socket, char *buffer,
                               size_t buffer_bytes)
{
    char host[INET6_ADDRSTRLEN] = "?";
    size_t host_bytes;
    if (socket->ss_family == AF_INET || socket->ss_family == AF_INET6)
        inet_ntop(socket->ss_family, names_host(socket, &host_bytes), host, sizeof(host));
    snprintf(buffer, buffer_bytes, socket->ss_family == AF_INET6 ? "[%s]:%u" : "%s:%u", host,
             port_of(socket));
    return buffer;
}

static int names_resolve(const char *text, int flags, struct ofi_address *ret_address)
{
    struct endpoint e;
    int error = endpoint_parse(text, &e, NULL);
    if (error < 0 || e.is_unix)
        return -EINVAL;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};
    struct addrinfo *list;
    char port[8];
    snprintf(port, sizeof(port), "%u", e.port);
    if (getaddrinfo(e.host, port, &hints, &list) != 0)
        return -EHOSTUNREACH;
    *ret_address = (struct ofi_address){.bytes = list->ai_addrlen};
    memcpy(&ret_address->socket, list->ai_addr, list->ai_addrlen);
    freeaddrinfo(list);
    return 0;
}

int ofi_address_of_peer(const char *text, struct ofi_address *ret_address)
{
    return names_resolve(text, 0, ret_address);
}

static bool is_address_of(const struct ifaddrs *i, const char *interface_name, int family)
{
    if (i->ifa_addr == NULL || strcmp(i->ifa_name, interface_name) != 0)
        return false;
    int found = i->ifa_addr->sa_family;
    if (found == AF_INET6 &&
        IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)i->ifa_addr)->sin6_addr))
        return false;
    return family == AF_UNSPEC ? found == AF_INET || found == AF_INET6 : found == family;
}

int ofi_address_of_interface(const char *interface_name, int family,
                             struct ofi_address *ret_address)
{
    struct ifaddrs *all;
    const struct sockaddr *best = NULL;
    if (getifaddrs(&all) < 0)
        return -EADDRNOTAVAIL;
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next)
        if (is_address_of(i, interface_name, family) &&
            (best == NULL || (best->sa_family == AF_INET6 && i->ifa_addr->sa_family == AF_INET)))
            best = i->ifa_addr;
    if (best != NULL) {
        bool is_v6 = best->sa_family == AF_INET6;
        *ret_address = (struct ofi_address){.bytes = is_v6 ? sizeof(struct sockaddr_in6)
                                                           : sizeof(struct sockaddr_in)};
        memcpy(&ret_address->socket, best, ret_address->bytes);
    }
    freeifaddrs(all);
    return best != NULL ? 0 : -EADDRNOTAVAIL;
}

int ofi_address_to_listen(const char *text, const char *interface_name,
                          struct ofi_address *ret_address)
{
    struct ofi_address address, own;
    int error = names_resolve(text, AI_PASSIVE, &address);
    if (error < 0)
        return error == -EHOSTUNREACH ? -EADDRNOTAVAIL : error;
    if (interface_name != NULL) {
        error = ofi_address_of_interface(interface_name, address.socket.ss_family, &own);
        if (error < 0)
            return error;
        if (!host_is_any(&address.socket) && !hosts_equal(&address.socket, &own.socket))
            return -EADDRNOTAVAIL;
        port_set(&own.socket, port_of(&address.socket));
        address = own;
    }
    *ret_address = address;
    return 0;
}

/* --- provider -------------------------------------------------------------------------------- */

static struct fi_info *provider_hints(const char *provider, uint64_t landed_flags)
{
    struct fi_info *hints = fi_allocinfo();
    if (hints == NULL)
        return NULL;
    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT | FI_RX_CQ_DATA;
    hints->ep_attr->type = FI_EP_MSG;
    hints->tx_attr->size = TX_SIZE_NEEDED;
    hints->tx_attr->op_flags = landed_flags;
    hints->domain_attr->cq_data_size = sizeof(uint32_t);
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->fabric_attr->prov_name = strdup(provider);
    return hints;
}

/* Returns whether transmitted bytes are in the peer's memory. With these protocols the peer's
 * adapter sends the acknowledgement of a write, and stores the bytes before the peer can read the
 * memory. */
static bool transmitted_is_landed(const struct fi_info *info)
{
    uint32_t protocol = info->ep_attr->protocol;
    return protocol == FI_PROTO_RDMA_CM_IB_RC || protocol == FI_PROTO_IWARP;
}

static int provider_info(const char *provider, const char *node, uint64_t landed_flags,
                         struct fi_info **ret_info)
{
    struct fi_info *hints = provider_hints(provider, landed_flags);
    if (hints == NULL)
        return -ENOMEM;
    int error = fi_getinfo(API_VERSION, node, NULL, node ? FI_SOURCE : 0, hints, ret_info);
    fi_freeinfo(hints);
    return ofi_errno(error);
}

static int provider_missing(const char *provider, const char *why)
{
    log_error("transport=ofi provider=%s error=\"%s\" next=\"run fi_info -t FI_EP_MSG to see the "
              "providers of this host; gradpool tries no other provider\"",
              provider, why);
    return -ENOSYS;
}

int ofi_provider_choose(const char *provider, const char *interface_name, struct fi_info **ret_info,
                        uint64_t *ret_landed_flags)
{
    struct ofi_address own;
    char node[INET6_ADDRSTRLEN] = "";
    size_t host_bytes;
    if (interface_name != NULL) {
        int error = ofi_address_of_interface(interface_name, AF_UNSPEC, &own);
        if (error < 0) {
            log_error("transport=ofi interface=%s error=\"no such interface, or it has no "
                      "address\"",
                      interface_name);
            return error;
        }
        inet_ntop(own.socket.ss_family, names_host(&own.socket, &host_bytes), node, sizeof(node));
    }
    provider = provider ? provider : "tcp";
    uint64_t landed_flags = FI_DELIVERY_COMPLETE;
    struct fi_info *info;
    int error = provider_info(provider, node[0] ? node : NULL, landed_flags, &info);
    if (error < 0) {
        landed_flags = FI_TRANSMIT_COMPLETE;
        error = provider_info(provider, node[0] ? node : NULL, landed_flags, &info);
    }
    if (error < 0)
        return provider_missing(provider, "no connected endpoints with RMA");
    if (landed_flags == FI_TRANSMIT_COMPLETE && !transmitted_is_landed(info)) {
        fi_freeinfo(info);
        return provider_missing(provider, "cannot tell when a write has landed");
    }
    info->tx_attr->op_flags = 0; /* no default flags, because each operation passes its own flags */
    *ret_info = info;
    *ret_landed_flags = landed_flags;
    return 0;
}

static bool address_replace(void **address, size_t *bytes, const struct ofi_address *by)
{
    free(*address);
    *address = NULL;
    *bytes = 0;
    if (by == NULL)
        return true;
    *address = malloc(by->bytes);
    if (*address == NULL)
        return false;
    memcpy(*address, &by->socket, by->bytes);
    *bytes = by->bytes;
    return true;
}

struct fi_info *ofi_info_for(const struct fi_info *base, const struct ofi_address *source,
                             const struct ofi_address *target)
{
    struct fi_info *info = fi_dupinfo(base);
    if (info == NULL)
        return NULL;
    const struct ofi_address *one = source ? source : target;
    info->addr_format = one->socket.ss_family == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
    if (!address_replace(&info->src_addr, &info->src_addrlen, source) ||
        !address_replace(&info->dest_addr, &info->dest_addrlen, target)) {
        fi_freeinfo(info);
        return NULL;
    }
    return info;
}

/* --- sockets --------------------------------------------------------------------------------- */

struct wanted_socket {
    struct sockaddr_storage local, peer; /* peer.ss_family 0: a socket without a peer */
};

static bool socket_is(int fd, const struct wanted_socket *wanted)
{
    struct sockaddr_storage name = {0};
    socklen_t bytes = sizeof(name);
    if (getsockname(fd, (struct sockaddr *)&name, &bytes) < 0 ||
        !addresses_equal(&name, &wanted->local))
        return false;
    name = (struct sockaddr_storage){0};
    bytes = sizeof(name);
    bool has_peer = getpeername(fd, (struct sockaddr *)&name, &bytes) == 0;
    if (wanted->peer.ss_family == 0)
        return !has_peer;
    return has_peer && addresses_equal(&name, &wanted->peer);
}

/* Calls `visit` for each descriptor until it returns true. Returns this descriptor, or -1. */
static int each_descriptor(bool (*visit)(int fd, const struct wanted_socket *wanted),
                           const struct wanted_socket *wanted)
{
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL)
        return -1;
    int found = -1;
    for (struct dirent *entry; found < 0 && (entry = readdir(folder)) != NULL;) {
        uint64_t fd;
        if (text_parse_u64(entry->d_name, 0, INT_MAX, &fd) == 0 && visit((int)fd, wanted))
            found = (int)fd;
    }
    closedir(folder);
    return found;
}

int ofi_socket_find(struct fid_ep *ep)
{
    struct wanted_socket wanted = {0};
    size_t local_bytes = sizeof(wanted.local), peer_bytes = sizeof(wanted.peer);
    if (fi_getname(&ep->fid, &wanted.local, &local_bytes) != 0 ||
        fi_getpeer(ep, &wanted.peer, &peer_bytes) != 0)
        return -1;
    return each_descriptor(socket_is, &wanted);
}

int ofi_socket_find_bound(struct fid_pep *pep)
{
    struct wanted_socket wanted = {0};
    size_t bytes = sizeof(wanted.local);
    if (fi_getname(&pep->fid, &wanted.local, &bytes) != 0)
        return -1;
    return each_descriptor(socket_is, &wanted);
}

/* --- errors ---------------------------------------------------------------------------------- */

int ofi_errno(ssize_t code)
{
    ssize_t positive = code < 0 ? -code : code;
    switch (positive) {
    case 0: return 0;
    /* libfabric cancels an operation only after its connection has ended, so cancelled counts as
     * reset */
    case FI_ECANCELED:
    case FI_ENOTCONN:
    case EPIPE:
    case FI_ESHUTDOWN: return -ECONNRESET;
    case FI_ETRUNC:
    case FI_ETOOSMALL: return -EMSGSIZE;
    case FI_ENODATA: return -ENOSYS;
    default: return positive >= FI_ERRNO_OFFSET ? -EIO : -(int)positive;
    }
}
