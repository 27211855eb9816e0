/* Options and state of a TCP connection whose peer may become silent. Has no state. The owner of
 * the connection calls these functions. svc/channel: H6; svc/fabric/ofi: O33. */
#include "svc/endpoint/tcp_alive.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

/* Time without an answer after which the kernel closes a connection. A message sent just before the
 * end of this time makes the kernel count from 0 again. Twice this time, plus the delays of a
 * loaded host, must therefore be less than the time for which a lane waits for a rank (AWAY_NS of
 * svc/lane). */
#define SILENT_PEER_MS 8000
/* Times of the keep-alive probes. A single lost probe must not close a connection. */
#define KEEPALIVE_IDLE_S 4
#define KEEPALIVE_INTERVAL_S 2
#define KEEPALIVE_PROBES 3
/* Number of retransmissions of the same bytes after which the peer counts as silent. Four
 * retransmissions take seconds. */
#define RETRANSMITS_LEAST 4
/* Time within which a live peer answers. */
#define ANSWERED_MS (1000 * (KEEPALIVE_IDLE_S + KEEPALIVE_INTERVAL_S) + 1000)

static void tcp_alive_set_option(int fd, int level, int option, int value)
{
    (void)setsockopt(fd, level, option, &value, sizeof(value));
}

void tcp_alive_watch(int fd)
{
    tcp_alive_set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    tcp_alive_set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    tcp_alive_set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S);
    tcp_alive_set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES);
    tcp_alive_set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, SILENT_PEER_MS);
}

bool tcp_alive_was_silent(int fd)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof(info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) < 0)
        return false;
    bool nothing_came =
        info.tcpi_last_ack_recv > ANSWERED_MS && info.tcpi_last_data_recv > ANSWERED_MS;
    return nothing_came || info.tcpi_retransmits >= RETRANSMITS_LEAST;
}
