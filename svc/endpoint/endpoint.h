/* The endpoint of a coordinator: gradpool://host:port, gradpool://[v6]:port or
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
#define ENDPOINT_ADDRESSES_MAX 16 /* most addresses of one name; others are not tried */

struct endpoint {
    bool is_unix;
    uint16_t port;
    char host[256]; /* or the socket's path */
};

/* Accepts the URL forms, "host:port", "host", "unix:/path" and "/path". -EINVAL; the text names the
 * expected form. */
int endpoint_parse(const char *text, struct endpoint *ret_endpoint, struct err *err);
/* Writes the URL into `buffer`; returns `buffer`. */
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

/* Whether a host name (no address, not localhost) is known within the deadline and has only
 * loopback addresses here, as a host's own name has on Debian: 127.0.1.1, of no use to other hosts.
 * `address` gets the first. */
bool endpoint_name_is_loopback(const char *host, uint64_t deadline_ns, char *address,
                               size_t address_bytes);

/* The addresses of a host that may move while the process runs, for a thread that must not wait for
 * a resolver. Begins as zeros, with the addresses found so far in `known`. */
struct endpoint_names {
    struct endpoint_addresses known;
    /* a lookup in progress, or with a result that was not taken yet; NULL: none */
    struct lookup *pending;
};

/* The place that holds a socket from the moment it exists, under a lock: a fork handler that takes
 * the lock knows the descriptors that the child has to close. */
struct endpoint_slot {
    pthread_mutex_t *lock;
    int *fd;
};

/* The addresses behind the endpoint. A number needs no lookup; for a name a thread is started, and
 * left behind when the deadline comes first. -ENOENT (no such name), -ETIMEDOUT, -EAGAIN (no
 * thread), -ENOMEM; the text names the host and the next step. */
int endpoint_resolve(const struct endpoint *e, uint64_t deadline_ns,
                     struct endpoint_addresses *ret_addresses, struct err *err);

/* Looks the endpoint up again, at most until the deadline. A later answer counts at the next call;
 * an address, a Unix socket or a lookup that fails leave `known` as it is. */
void endpoint_names_refresh(const struct endpoint *e, struct endpoint_names *names,
                            uint64_t deadline_ns);
/* Gives up a lookup in progress, so that no old answer is taken later. */
void endpoint_names_rest(struct endpoint_names *names);

/* Connects within the deadline, trying every address. `slot` (NULL: none) holds the socket on
 * success and -1 after a failure; not with its lock held. The text names the endpoint, the address
 * tried and the next step. -ECONNREFUSED, -ETIMEDOUT, -EHOSTUNREACH, -ENOENT (no socket file),
 * -EINVAL (port 0). */
int endpoint_connect_to(const struct endpoint *e, const struct endpoint_addresses *addresses,
                        uint64_t deadline_ns, const struct endpoint_slot *slot, int *ret_fd,
                        struct err *err);
/* Resolves, then connects: for callers that connect rarely. */
int endpoint_connect(const struct endpoint *e, uint64_t deadline_ns, int *ret_fd, struct err *err);

/* A listening socket. For port 0 the kernel picks one, which is written back. A stale Unix socket
 * file is replaced; the new one has mode 0660. `interface_name` (NULL: any): the host 0.0.0.0 or
 * [::] becomes that interface's address, which is written back too; another host must be that
 * address. -EADDRINUSE, -EADDRNOTAVAIL, -EACCES, -ENODEV (no such interface), -ENOENT or -ETIMEDOUT
 * (a host name, looked up for at most 10 s). */
int endpoint_listen(struct endpoint *e, const char *interface_name, int *ret_fd, struct err *err);

/* The address of this host for other hosts: that of `interface_name`, or (NULL) of the socket
 * `connected_fd`, 127.0.0.1 for a Unix socket. -ENODEV,
 * -EADDRNOTAVAIL (the interface has none), -ENOSPC. */
int endpoint_local_address(const char *interface_name, int connected_fd, char *buffer,
                           size_t buffer_bytes);

#endif
