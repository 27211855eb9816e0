/* Other processes on this host: which one a number means, whether it has ended, ending it. A number
 * alone is never killed: it may mean another process by now (K7). */
#include "svc/coordinator/service.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

static size_t read_file(const char *path, char *buffer, size_t buffer_bytes)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    size_t got = fread(buffer, 1, buffer_bytes - 1, file);
    fclose(file);
    buffer[got] = 0;
    return got;
}

static uint64_t hash(uint64_t seed, const char *text)
{
    uint64_t value = seed ^ UINT64_C(0xcbf29ce484222325);
    for (; *text; text++)
        value = (value ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    return value;
}

/* The second field of /proc/PID/stat, the name, may hold anything, so fields are counted from its
 * closing parenthesis, to which this leads; NULL: there is no such process. */
static const char *read_stat(uint32_t pid, char line[1024])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    return read_file(path, line, 1024) ? strrchr(line, ')') : NULL;
}

char process_state(uint32_t pid)
{
    char line[1024];
    const char *at = read_stat(pid, line);
    return at && at[1] == ' ' ? at[2] : 0;
}

/* Field 22: when it started, in ticks since boot. */
static uint64_t start_ticks(uint32_t pid)
{
    char line[1024];
    const char *at = read_stat(pid, line);
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    unsigned long long ticks = 0;
    return at && sscanf(at, "%llu", &ticks) == 1 ? ticks : 0;
}

uint64_t process_identity(uint32_t pid)
{
    char boot[64];
    uint64_t ticks = pid ? start_ticks(pid) : 0;
    if (!ticks || !read_file("/proc/sys/kernel/random/boot_id", boot, sizeof boot))
        return 0;
    uint64_t identity = hash(ticks, boot);
    return identity ? identity : 1;
}

static bool is_dead(int pidfd)
{
    struct pollfd poll_fd = {.fd = pidfd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1;
}

int process_open(uint32_t pid, uint64_t identity, int *ret_fd)
{
    if (!pid || !identity)
        return -ESRCH;
    int fd = pidfd_open((pid_t)pid, 0);
    if (fd < 0)
        return -errno;
    /* Checked after the open: from here on the descriptor cannot come to mean another one. */
    if (process_identity(pid) != identity || is_dead(fd)) {
        close(fd);
        return -ESRCH;
    }
    *ret_fd = fd;
    return 0;
}

void process_kill(int pidfd, int signal) { pidfd_send_signal(pidfd, signal, NULL, 0); }
