/* Where a coordinator is: gradpool://host:port, gradpool://[v6]:port or gradpool+unix:///path. */
#ifndef GRADPOOL_WIRE_ENDPOINT_H
#define GRADPOOL_WIRE_ENDPOINT_H

#include "svc/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENDPOINT_PORT_DEFAULT 7077

struct endpoint {
    bool is_unix;
    uint16_t port;
    char host[256]; /* or the socket's path */
};

/* Accepts the URL forms, "host:port", "host" and "unix:/path". -EINVAL with a text that says what
 * was expected. */
int endpoint_parse(const char *text, struct endpoint *ret_endpoint, struct err *err);
/* The URL into `buffer`; returns it. */
const char *endpoint_format(const struct endpoint *e, char *buffer, size_t buffer_bytes);
bool endpoint_is_loopback(const struct endpoint *e);

/* Connects within the deadline, trying every address of the name. The text names the endpoint, the
 * address tried and the next step. -ECONNREFUSED, -ETIMEDOUT, -EHOSTUNREACH, -ENOENT (name). */
int endpoint_connect(const struct endpoint *e, uint64_t deadline_ns, int *ret_fd, struct err *err);

/* A listening socket. Port 0 picks one and writes it back. A stale Unix socket file is replaced.
 * `interface_name` (NULL: any): the host 0.0.0.0 or [::] becomes that interface's address, which is
 * written back too; another host must be that address. -EADDRINUSE, -EADDRNOTAVAIL, -EACCES,
 * -ENODEV (no such interface). */
int endpoint_listen(struct endpoint *e, const char *interface_name, int *ret_fd, struct err *err);

/* The address other hosts should use for this one: of `interface_name`, or of the socket
 * `connected_fd` (used without an interface name; 127.0.0.1 for a Unix socket). -ENODEV,
 * -EADDRNOTAVAIL (the interface has none), -ENOSPC. */
int endpoint_local_address(const char *interface_name, int connected_fd, char *buffer,
                           size_t buffer_bytes);

#endif
