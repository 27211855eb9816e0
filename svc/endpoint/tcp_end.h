/* How a TCP connection has ended (svc/channel, H6). */
#ifndef GRADPOOL_ENDPOINT_TCP_END_H
#define GRADPOOL_ENDPOINT_TCP_END_H

#include <stdbool.h>

/* Returns whether the peer's kernel has acknowledged all bytes that were sent, even if the
 * connection has ended. Returns false on a kernel before Linux 4.19, which does not count these
 * bytes. Returns true for a Unix socket. */
bool tcp_end_is_acknowledged(int fd);

#endif
