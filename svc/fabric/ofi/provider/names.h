/* Names of fabric_ofi: addresses, the provider, sockets and error codes. No state. */
#ifndef GRADPOOL_FABRIC_OFI_PROVIDER_NAMES_H
#define GRADPOOL_FABRIC_OFI_PROVIDER_NAMES_H

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct ofi_address {
    struct sockaddr_storage socket;
    socklen_t bytes;
};

/* "host:port" or "[v6]:port" of a peer. A host name costs a look-up that may block; routes carry
 * numbers. Errors: -EINVAL, -EHOSTUNREACH (name not known). */
int ofi_address_of_peer(const char *text, struct ofi_address *ret_address);

/* An address to listen on; with `interface_name` the hosts 0.0.0.0 and [::] become that interface's
 * address, and any other must be it. Errors: -EINVAL, -EADDRNOTAVAIL. */
int ofi_address_to_listen(const char *text, const char *interface_name,
                          struct ofi_address *ret_address);

/* The address of an interface in a family (AF_UNSPEC: IPv4 before IPv6), port 0. -EADDRNOTAVAIL. */
int ofi_address_of_interface(const char *interface_name, int family,
                             struct ofi_address *ret_address);

/* "10.0.0.3:51234" or "[fd00::3]:51234"; returns `buffer`. */
const char *ofi_address_format(const struct sockaddr_storage *socket, char *buffer,
                               size_t buffer_bytes);

/* The offer of fi_getinfo for the provider (NULL: "tcp"): reliable connected endpoints with RMA.
 * `ret_landed_flags`: flags with which the completion of a write means that the bytes lie in the
 * peer's memory (O4). Logs the reason, then -ENOSYS (no such provider, or it lacks something) or
 * -EADDRNOTAVAIL (no such interface). */
int ofi_provider_choose(const char *provider, const char *interface_name, struct fi_info **ret_info,
                        uint64_t *ret_landed_flags);

/* A copy of `base` for one endpoint; either address may be NULL. NULL: out of memory. */
struct fi_info *ofi_info_for(const struct fi_info *base, const struct ofi_address *source,
                             const struct ofi_address *target);

/* The socket below an endpoint, found by its two addresses; -1 when there is none (RDMA). */
int ofi_socket_find(struct fid_ep *ep);
/* The socket below a passive endpoint, likewise. */
int ofi_socket_find_bound(struct fid_pep *pep);

/* Negative errno for a libfabric code of either sign: its own codes start at 256. */
int ofi_errno(ssize_t code);

#endif
