/* Endpoint of a coordinator: gradpool://host:port, gradpool://[v6]:port or
 * gradpool+unix:///path. */
#ifndef GRADPOOL_ENDPOINT_ENDPOINT_H
#define GRADPOOL_ENDPOINT_ENDPOINT_H

#include "svc/base/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define ENDPOINT_PORT_DEFAULT 7077
/* maximum number of addresses of one name that are used; further addresses are ignored */
#define ENDPOINT_ADDRESSES_MAX 16

struct endpoint {
    bool is_unix;
    uint16_t port;
    char host[256]; /* host, or path of the Unix socket */
};

/* Parses the URL forms, "host:port", "host", "unix:/path" and "/path". Returns 0, or -EINVAL; the
 * text says which forms are expected. */
int endpoint_parse(const char *text, struct endpoint *ret_endpoint, struct err *err);
/* Writes the URL to `buffer` and returns `buffer`. */
const char *endpoint_format(const struct endpoint *e, char *buffer, size_t buffer_bytes);
bool endpoint_is_loopback(const struct endpoint *e);

struct endpoint_address {
    struct sockaddr_storage socket;
    socklen_t bytes;
};

struct endpoint_addresses {
    uint32_t count; /* at least 1 */
    struct endpoint_address list[ENDPOINT_ADDRESSES_MAX];
};

/* Returns whether a host name (not an address, not localhost) resolves to loopback addresses only.
 * On Debian a host's own name resolves to 127.0.1.1, which other hosts cannot use. The first
 * address is written to `address`. Returns false if the deadline passes. */
bool endpoint_name_is_loopback(const char *host, uint64_t deadline_ns, char *address,
                               size_t address_bytes);

/* Addresses of a host whose address may change while the process runs. Used by a thread that must
 * not wait for a name server. At first all fields are zero, except `known` if an address is
 * known. */
struct endpoint_names {
    struct endpoint_addresses known;
    /* a lookup that still runs, or whose result was not used yet; NULL: none */
    struct lookup *pending;
};

/* Variable that receives a socket as soon as the socket is created, under a lock. A fork
 * handler that holds the lock therefore knows all descriptors that the child has to close. */
struct endpoint_slot {
    pthread_mutex_t *lock;
    int *fd;
};

/* Finds the addresses of the endpoint. A numeric address needs no lookup. For a name, a thread is
 * started; at the deadline the function returns even if the thread still runs. Returns 0 or an
 * error, whose text names the host and the next step. -ENOENT: no such name. -EAGAIN: no thread
 * could be started. -ETIMEDOUT, -ENOMEM. */
int endpoint_resolve(const struct endpoint *e, uint64_t deadline_ns,
                     struct endpoint_addresses *ret_addresses, struct err *err);

/* Looks up the endpoint again, until the deadline at most. If the answer arrives after the
 * deadline, the next call uses it. `known` does not change for an address or a Unix socket, nor
 * after a failed lookup. */
void endpoint_names_refresh(const struct endpoint *e, struct endpoint_names *names,
                            uint64_t deadline_ns);
/* Cancels a lookup in progress, so that a later call does not use its outdated answer. */
void endpoint_names_rest(struct endpoint_names *names);

/* Connects before the deadline, and tries every address. `slot` (or NULL) contains the socket after
 * success and -1 after an error; the caller must not hold the lock of `slot`. Returns 0 or an
 * error, whose text names the endpoint, the address and the next step. -ECONNREFUSED, -ETIMEDOUT,
 * -EHOSTUNREACH, -ENOENT (no socket file), -EINVAL (port 0). */
int endpoint_connect_to(const struct endpoint *e, const struct endpoint_addresses *addresses,
                        uint64_t deadline_ns, const struct endpoint_slot *slot, int *ret_fd,
                        struct err *err);
/* Resolves and connects, for callers that connect rarely. Returns as endpoint_resolve() and
 * endpoint_connect_to(). */
int endpoint_connect(const struct endpoint *e, uint64_t deadline_ns, int *ret_fd, struct err *err);

/* Opens a listening socket. For port 0 the kernel chooses a port, which is written to `e`. A Unix
 * socket file without a listener is replaced; the new file has mode 0660. `interface_name` (NULL:
 * any): the host 0.0.0.0 or [::] is replaced by the interface's address, also in `e`; any other
 * host must be that address. Returns 0 or an error: -EADDRINUSE, -EADDRNOTAVAIL, -EACCES, -ENODEV
 * (no such interface), -ENOENT or -ETIMEDOUT (a lookup of a host name takes 10 s at most). */
int endpoint_listen(struct endpoint *e, const char *interface_name, int *ret_fd, struct err *err);

/* Writes the address under which other hosts can connect to this host: the address of
 * `interface_name`, or, if NULL, of the socket `connected_fd`. For a Unix socket the result is
 * 127.0.0.1. Returns 0, -ENODEV, -EADDRNOTAVAIL (the interface has no address) or -ENOSPC. */
int endpoint_local_address(const char *interface_name, int connected_fd, char *buffer,
                           size_t buffer_bytes);

#endif
