/* Reads the kernel's count of the time for which a thread was ready but did not run. Owns nothing.
 * For statistics only, never on the data path (A46). */
#include "svc/host/core_wait.h"

#include "svc/base/cleanup.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

/* The file has three numbers: time in which the thread ran, time in which it waited, number of
 * slices. */
uint64_t core_wait_ns(void)
{
    char text[96];
    uint64_t waited_ns = 0;
    _cleanup_fd_ int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    text[bytes > 0 ? bytes : 0] = 0;
    return sscanf(text, "%*u %" SCNu64, &waited_ns) == 1 ? waited_ns : 0;
}
