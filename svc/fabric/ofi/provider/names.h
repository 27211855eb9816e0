/* Converts addresses, provider names, sockets and error codes. Has no state. */
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

/* Parses "host:port" or "[v6]:port" of a peer. Looking up a host name may block; addresses from
 * routes are numeric. Returns 0, -EINVAL, or -EHOSTUNREACH for an unknown name. */
int ofi_address_of_peer(const char *text, struct ofi_address *ret_address);

/* Parses an address for listening. With `interface_name`, the hosts 0.0.0.0 and [::] mean the
 * interface's address, and any other host must be that address. Returns 0, -EINVAL or
 * -EADDRNOTAVAIL. */
int ofi_address_to_listen(const char *text, const char *interface_name,
                          struct ofi_address *ret_address);

/* Writes the address of an interface with port 0. `family`: AF_INET, AF_INET6, or AF_UNSPEC for
 * IPv4 if possible and IPv6 otherwise. Returns 0 or -EADDRNOTAVAIL. */
int ofi_address_of_interface(const char *interface_name, int family,
                             struct ofi_address *ret_address);

/* Writes an address such as "10.0.0.3:51234" or "[fd00::3]:51234" and returns `buffer`. */
const char *ofi_address_format(const struct sockaddr_storage *socket, char *buffer,
                               size_t buffer_bytes);

/* Chooses an entry of fi_getinfo() for the provider (NULL: "tcp") with reliable connected endpoints
 * and RMA. `ret_landed_flags`: flags for writes whose completion means that the bytes are in the
 * peer's memory (O4). Returns 0 or an error, whose reason is logged. -ENOSYS: there is no such
 * provider, or it lacks a feature. -EADDRNOTAVAIL: no such interface. */
int ofi_provider_choose(const char *provider, const char *interface_name, struct fi_info **ret_info,
                        uint64_t *ret_landed_flags);

/* Returns a copy of `base` for one endpoint, or NULL if memory is missing. Either address may be
 * NULL. */
struct fi_info *ofi_info_for(const struct fi_info *base, const struct ofi_address *source,
                             const struct ofi_address *target);

/* Finds the socket of an endpoint by its two addresses. Returns -1 if there is none (RDMA). */
int ofi_socket_find(struct fid_ep *ep);
/* Finds the socket of a passive endpoint by its address. Returns -1 if there is none. */
int ofi_socket_find_bound(struct fid_pep *pep);

/* Converts a libfabric code of either sign to a negative errno. Codes from 256 on are libfabric's
 * own. */
int ofi_errno(ssize_t code);

#endif
