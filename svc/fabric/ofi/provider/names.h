/* Converts addresses, names of providers, sockets and error codes. Keeps no state. */
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

/* Parses "host:port" or "[v6]:port" of a peer. Looking up a host name may block; routes contain
 * numeric addresses. Errors: -EINVAL, -EHOSTUNREACH (unknown name). */
int ofi_address_of_peer(const char *text, struct ofi_address *ret_address);

/* Parses an address to listen on. With `interface_name` the hosts 0.0.0.0 and [::] become the
 * interface's address, and any other host must be that address. Errors: -EINVAL, -EADDRNOTAVAIL. */
int ofi_address_to_listen(const char *text, const char *interface_name,
                          struct ofi_address *ret_address);

/* Returns the address of an interface in a family (AF_UNSPEC: IPv4 before IPv6), with port 0.
 * -EADDRNOTAVAIL. */
int ofi_address_of_interface(const char *interface_name, int family,
                             struct ofi_address *ret_address);

/* Writes "10.0.0.3:51234" or "[fd00::3]:51234"; returns `buffer`. */
const char *ofi_address_format(const struct sockaddr_storage *socket, char *buffer,
                               size_t buffer_bytes);

/* Chooses an offer of fi_getinfo for the provider (NULL: "tcp"): reliable connected endpoints with
 * RMA. `ret_landed_flags`: flags with which the completion of a write means that the bytes are in
 * the peer's memory (O4). Errors, whose reason is logged: -ENOSYS (no such provider, or it lacks a
 * feature), -EADDRNOTAVAIL (no such interface). */
int ofi_provider_choose(const char *provider, const char *interface_name, struct fi_info **ret_info,
                        uint64_t *ret_landed_flags);

/* Returns a copy of `base` for one endpoint. Either address may be NULL. NULL: no memory. */
struct fi_info *ofi_info_for(const struct fi_info *base, const struct ofi_address *source,
                             const struct ofi_address *target);

/* Finds the socket of an endpoint by its two addresses. -1: there is none (RDMA). */
int ofi_socket_find(struct fid_ep *ep);
/* Finds the socket of a passive endpoint in the same way. */
int ofi_socket_find_bound(struct fid_pep *pep);

/* Returns a negative errno for a libfabric code of either sign. libfabric's own codes start at
 * 256. */
int ofi_errno(ssize_t code);

#endif
