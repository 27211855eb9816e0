/* Makes the kernel detect that the host at the other end of a TCP connection no longer responds
 * (svc/channel, H6). */
#ifndef GRADPOOL_ENDPOINT_TCP_ALIVE_H
#define GRADPOOL_ENDPOINT_TCP_ALIVE_H

#include <stdbool.h>

/* Makes the kernel probe a quiet peer every few seconds, so that firewalls keep the connection. The
 * kernel closes the connection when nothing has arrived for 8 s. Errors are ignored. */
void tcp_alive_watch(int fd);
/* Returns whether the kernel closed the connection because nothing had arrived. */
bool tcp_alive_was_silent(int fd);

#endif
