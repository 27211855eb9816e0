/* Reads the state of processes from the kernel. */
#include "bench/lib/host.h"

#include "svc/base/cleanup.h"
#include "svc/base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int process_core(uint32_t index)
{
    /* Cores that this process may use. They are read before the process binds itself to one
     * core. */
    static cpu_set_t allowed;
    static int count;
    if (count == 0) {
        CPU_ZERO(&allowed);
        count = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 0;
    }
    uint32_t wanted = count > 0 ? index % (uint32_t)count : 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && wanted-- == 0)
            return cpu;
    return 0;
}

void process_bind(uint32_t index)
{
    cpu_set_t one;
    int cpu = process_core(index);
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

pid_t process_fork(int signal)
{
    pid_t parent = getpid(), pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, signal);
    if (getppid() != parent)
        _exit(1);
    return 0;
}

static void redirect(int stream, const char *path)
{
    int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (file >= 0)
        dup2(file, stream);
}

pid_t process_spawn_apart(char *const *argv, char *const *environment, const char *output_path,
                          const char *error_path)
{
    pid_t pid = process_fork(SIGTERM);
    if (pid < 0)
        return -errno;
    if (pid > 0)
        return pid;
    redirect(STDOUT_FILENO, output_path);
    redirect(STDERR_FILENO, error_path);
    execvpe(argv[0], argv, environment);
    fprintf(stderr, "gradpool-bench: cannot run %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

pid_t process_spawn(char *const *argv, char *const *environment, const char *log_path)
{
    return process_spawn_apart(argv, environment, log_path, log_path);
}

int process_reap(pid_t pid, uint64_t deadline_ns)
{
    int status = 0;
    _cleanup_fd_ int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd end = {.fd = fd, .events = POLLIN};
    while (fd >= 0 && poll(&end, 1, clock_poll_ms(deadline_ns, clock_now_ns())) < 0 &&
           errno == EINTR) {
    }
    if (!(end.revents & POLLIN))
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

uint64_t process_cpu_ns(pid_t pid)
{
    clockid_t clock;
    struct timespec cpu;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &cpu) < 0)
        return 0;
    return (uint64_t)cpu.tv_sec * NS_PER_S + (uint64_t)cpu.tv_nsec;
}

uint64_t process_resident_bytes(pid_t pid)
{
    char path[64], text[128];
    unsigned long long pages = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    text[bytes > 0 ? bytes : 0] = 0;
    return sscanf(text, "%*u %llu", &pages) == 1 ? pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

/* Parses /proc/PID/stat. The name in parentheses may contain any characters, even parentheses. */
static pid_t parent_of(const char *pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    text[bytes > 0 ? bytes : 0] = 0;
    const char *end = strrchr(text, ')');
    int parent = 0;
    return end && sscanf(end + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

size_t process_children(pid_t parent, pid_t *ret_pids, size_t most)
{
    size_t count = 0;
    const struct dirent *entry;
    DIR *proc = opendir("/proc");
    while (proc && count < most && (entry = readdir(proc)))
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
            parent_of(entry->d_name) == parent)
            ret_pids[count++] = (pid_t)strtol(entry->d_name, NULL, 10);
    if (proc)
        closedir(proc);
    return count;
}

int process_find_beside(const char *name, char *ret_path, size_t path_bytes)
{
    static const char *const places[] = {"", "../"};
    char folder[PATH_MAX];
    ssize_t bytes = readlink("/proc/self/exe", folder, sizeof folder - 1);
    folder[bytes > 0 ? bytes : 0] = 0;
    char *slash = strrchr(folder, '/');
    if (!slash)
        return -ENOENT;
    slash[1] = 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int needed = snprintf(ret_path, path_bytes, "%s%s%s", folder, places[i], name);
        if (needed > 0 && (size_t)needed < path_bytes && access(ret_path, R_OK) == 0)
            return 0;
    }
    return -ENOENT;
}
