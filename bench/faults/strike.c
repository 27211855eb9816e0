/* Cuts connections. Must never change a process that neither the bench nor its service has
 * started. */
#include "bench/faults/strike.h"

#include "svc/base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SOCKETS_MAX 256

/* Returns whether the descriptor is a TCP or Unix connection to another process. A socket pair
 * within a process only wakes threads, and no network failure can cut such a pair. */
static bool is_connection(int fd, pid_t owner)
{
    struct sockaddr_storage peer;
    struct ucred other = {0};
    socklen_t bytes = sizeof peer, other_bytes = sizeof other;
    return getpeername(fd, (struct sockaddr *)&peer, &bytes) == 0 &&
           (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &other_bytes) < 0 ||
            other.pid != owner);
}

static size_t list_sockets(pid_t pid, int *ret_numbers)
{
    char path[64], link[300], target[64];
    size_t count = 0;
    const struct dirent *entry;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *folder = opendir(path);
    while (folder && count < SOCKETS_MAX && (entry = readdir(folder))) {
        snprintf(link, sizeof link, "%s/%.32s", path, entry->d_name);
        ssize_t bytes = readlink(link, target, sizeof target - 1);
        target[bytes > 0 ? bytes : 0] = 0;
        if (strncmp(target, "socket:", 7) == 0)
            ret_numbers[count++] = (int)strtol(entry->d_name, NULL, 10);
    }
    if (folder)
        closedir(folder);
    return count;
}

int strike_cut(pid_t pid, unsigned chance)
{
    int numbers[SOCKETS_MAX];
    size_t count = list_sockets(pid, numbers);
    _cleanup_fd_ int process = (int)syscall(SYS_pidfd_open, pid, 0);
    for (size_t i = 0; process >= 0 && i < count; i++) {
        int number = numbers[(i + chance) % count];
        _cleanup_fd_ int copy = (int)syscall(SYS_pidfd_getfd, process, number, 0);
        if (copy < 0 && errno == EPERM)
            return -EPERM;
        if (copy >= 0 && is_connection(copy, pid))
            return shutdown(copy, SHUT_RDWR) < 0 ? -errno : 0;
    }
    return -ENOENT;
}
