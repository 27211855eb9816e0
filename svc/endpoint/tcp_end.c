/* Reads whether the peer's kernel has acknowledged all bytes of a connection, also after the end of
 * the connection. Has no state. The struct of the C library lacks these counters, and its header
 * cannot be included beside the kernel's header. */
#include "svc/endpoint/tcp_end.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

bool tcp_end_is_acknowledged(int fd)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) < 0)
        return errno == EOPNOTSUPP; /* a Unix socket: no network is between the ends */
    size_t needed = offsetof(struct tcp_info, tcpi_bytes_retrans) + sizeof info.tcpi_bytes_retrans;
    /* A firewall may also reset the connection in answer to a probe. The counters of bytes do not
     * include the byte of a probe. */
    return bytes >= needed && info.tcpi_probes == 0 &&
           info.tcpi_bytes_acked + info.tcpi_bytes_retrans >= info.tcpi_bytes_sent;
}
