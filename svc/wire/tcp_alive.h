/* Whether the host at the other end of a TCP connection is still there, as the kernel finds out by
 * itself (README, H6). */
#ifndef GRADPOOL_WIRE_TCP_ALIVE_H
#define GRADPOOL_WIRE_TCP_ALIVE_H

#include <stdbool.h>

/* The kernel asks a quiet peer every few seconds, so that firewalls do not forget the connection,
 * and ends it once nothing has come for 10 s. Best effort. */
void tcp_alive_watch(int fd);
/* Whether a watched connection has ended because nothing arrived, not by the peer's doing. */
bool tcp_alive_was_silent(int fd);

#endif
