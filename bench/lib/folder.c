/* Owns temporary folders that are removed even if a signal ends this process. A child process, the
 * keeper, waits for the end of this process and of all processes that it started later, and then
 * removes the folder. The folder of a service must never be removed while the service drains. */
#include "bench/lib/folder.h"

#include "bench/lib/host.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEEPERS_MAX 8

/* Every process that this process starts inherits the writing end of the pipe, also across exec.
 * EOF at the reading end means that all these processes have ended. */
static struct keeper {
    char path[PATH_MAX];
    pid_t pid; /* process id of the keeper; 0: the row is free */
    int fd;
} keepers[KEEPERS_MAX];

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    return remove(path);
}

static void remove_all(const char *path) { nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

/* Closes all inherited descriptors, so that no other process waits for the keeper. */
static void wait_and_remove(const char *path, int fd)
{
    char nothing;
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    dup2(fd, STDIN_FILENO);
    close_range(STDOUT_FILENO, UINT_MAX, 0);
    while (read(STDIN_FILENO, &nothing, 1) < 0 && errno == EINTR) {
    }
    remove_all(path);
    _exit(0);
}

static struct keeper *keeper_of(const char *path)
{
    for (size_t i = 0; i < KEEPERS_MAX; i++)
        if (keepers[i].pid > 0 ? strcmp(keepers[i].path, path) == 0 : !*path)
            return &keepers[i];
    return NULL;
}

/* Starts the keeper. If the start fails, measurements continue, but after a signal the folder
 * remains. */
static void keep(const char *path)
{
    struct keeper *k = keeper_of("");
    int ends[2];
    if (!k || pipe(ends) < 0)
        return;
    fflush(NULL); /* otherwise the child would print the buffered text again */
    pid_t pid = fork();
    if (pid == 0)
        wait_and_remove(path, ends[0]);
    close(ends[0]);
    if (pid < 0) {
        close(ends[1]);
        return;
    }
    *k = (struct keeper){.pid = pid, .fd = ends[1]};
    snprintf(k->path, sizeof k->path, "%s", path);
}

static void let_go(const char *path)
{
    struct keeper *k = keeper_of(path);
    if (!k)
        return;
    kill(k->pid, SIGKILL);
    process_reap(k->pid, UINT64_MAX);
    close(k->fd);
    *k = (struct keeper){0};
}

int folder_make(char *ret_path, size_t path_bytes)
{
    const char *base = getenv("TMPDIR");
    snprintf(ret_path, path_bytes, "%s/gradpool-bench-XXXXXX", base ? base : "/tmp");
    if (mkdtemp(ret_path)) {
        keep(ret_path);
        return 0;
    }
    int error = errno;
    fprintf(stderr, "gradpool-bench: cannot make a folder %s: %s\n", ret_path, strerror(error));
    ret_path[0] = 0;
    return -error;
}

void folder_remove(const char *path)
{
    if (!*path)
        return;
    remove_all(path);
    let_go(path);
}
