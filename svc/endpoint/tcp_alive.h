/* The kernel's watch over the host at the other end of a TCP connection (svc/channel, H6). */
#ifndef GRADPOOL_ENDPOINT_TCP_ALIVE_H
#define GRADPOOL_ENDPOINT_TCP_ALIVE_H

#include <stdbool.h>

/* The kernel probes a quiet peer every few seconds, so that firewalls do not forget the connection,
 * and ends it once nothing has come for 8 s. Best effort. */
void tcp_alive_watch(int fd);
/* Whether a watched connection has ended because nothing arrived, and not by the peer. */
bool tcp_alive_was_silent(int fd);

#endif
