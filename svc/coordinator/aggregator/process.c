/* Processes on this host: whether a process has ended, and signals to a process. A signal is sent
 * to a pidfd, never to a process number, because the kernel may have given the number of an ended
 * process to a new process (K7). */
#include "svc/coordinator/aggregator/process.h"

#include "svc/base/system/process.h"
#include "svc/base/system/shortage.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <poll.h>
#include <sys/pidfd.h>
#include <unistd.h>

static bool is_dead(int pidfd)
{
    struct pollfd poll_fd = {.fd = pidfd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1;
}

/* Checks in /proc whether the process is alive, for sandboxes that refuse pidfd_open(). */
static int look_without_pidfd(uint32_t pid, uint64_t identity, int error)
{
    return shortage_is_refusal(error) && process_identity(pid) != identity ? -ESRCH : error;
}

int process_open(uint32_t pid, uint64_t identity, int *ret_fd)
{
    if (!pid || !identity)
        return -ESRCH;
    int fd = pidfd_open((pid_t)pid, 0);
    if (fd < 0)
        return look_without_pidfd(pid, identity, -errno);
    /* The identity is checked after the pidfd is open. Before the pidfd is open, the number could
     * pass to a new process. */
    if (process_identity(pid) != identity || is_dead(fd)) {
        close(fd);
        return -ESRCH;
    }
    *ret_fd = fd;
    return 0;
}

bool process_has_ended(uint32_t pid, uint64_t identity)
{
    int fd = -1, error = process_open(pid, identity, &fd);
    if (error == 0)
        close(fd);
    return error == -ESRCH;
}

void process_kill(int pidfd, int signal) { pidfd_send_signal(pidfd, signal, NULL, 0); }
