/* The tracer is a child process, so that its parent can communicate with the traced processes. The
 * tracer writes counts to shared memory and is killed at the end: the kernel then detaches the
 * traced threads. */
#include "bench/budget/trace.h"

#include "bench/lib/host.h"
#include "svc/base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/ptrace.h>

#define THREADS_MAX 512
#define END_NS NS_PER_S

struct trace {
    pid_t tracer;
    struct trace_counts counts[TRACE_ROLES];
    struct {
        pid_t thread;
        enum trace_role role;
    } threads[THREADS_MAX];
    size_t threads_count;
};

static int seize_all(struct trace *t, pid_t process, enum trace_role role)
{
    char path[64];
    const struct dirent *entry;
    int r = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)process);
    DIR *tasks = opendir(path);
    while (tasks && r == 0 && t->threads_count < THREADS_MAX && (entry = readdir(tasks))) {
        pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10);
        if (thread <= 0)
            continue;
        if (ptrace(PTRACE_SEIZE, thread, NULL, PTRACE_O_TRACESYSGOOD) < 0 ||
            ptrace(PTRACE_INTERRUPT, thread, NULL, NULL) < 0)
            r = -errno;
        t->threads[t->threads_count].thread = thread;
        t->threads[t->threads_count++].role = role;
    }
    if (tasks)
        closedir(tasks);
    return tasks ? r : -ESRCH;
}

static enum trace_role role_of(const struct trace *t, pid_t thread)
{
    for (size_t i = 0; i < t->threads_count; i++)
        if (t->threads[i].thread == thread)
            return t->threads[i].role;
    return TRACE_WORKER;
}

static void count(struct trace *t, pid_t thread)
{
    struct __ptrace_syscall_info info;
    struct trace_counts *counts = &t->counts[role_of(t, thread)];
    if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) <= 0 ||
        info.op != PTRACE_SYSCALL_INFO_ENTRY)
        return;
    counts->calls++;
    switch (info.entry.nr) {
    case SYS_mmap:
    case SYS_munmap:
    case SYS_mremap:
    case SYS_brk:
    case SYS_madvise: counts->memory_calls++; break;
    default: break;
    }
}

/* Resumes each stopped thread, forever. */
static void follow(struct trace *t)
{
    int status;
    pid_t thread;
    while ((thread = waitpid(-1, &status, __WALL)) > 0 || errno == EINTR) {
        if (thread <= 0 || !WIFSTOPPED(status))
            continue;
        int signal = WSTOPSIG(status);
        if (signal == (SIGTRAP | 0x80))
            count(t, thread);
        bool is_signal = signal != (SIGTRAP | 0x80) && status >> 16 == 0;
        ptrace(PTRACE_SYSCALL, thread, NULL, is_signal ? signal : 0);
    }
}

/* Starts to trace, writes the result of the start to the pipe as one number, then counts system
 * calls. */
static void run(struct trace *t, int pipe_fd, const pid_t *servers, size_t servers_count,
                const pid_t *workers, size_t workers_count)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < servers_count; i++)
        r = seize_all(t, servers[i], TRACE_SERVER);
    for (size_t i = 0; r == 0 && i < workers_count; i++)
        r = seize_all(t, workers[i], TRACE_WORKER);
    if (write(pipe_fd, &r, sizeof r) == sizeof r && r == 0)
        follow(t);
    _exit(0);
}

int trace_start(const pid_t *servers, size_t servers_count, const pid_t *workers,
                size_t workers_count, struct trace **ret_trace)
{
    int fds[2], r = -EIO;
    struct trace *t =
        mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (t == MAP_FAILED)
        return -ENOMEM;
    if (pipe(fds) < 0) {
        munmap(t, sizeof *t);
        return -EMFILE;
    }
    pid_t tracer = process_fork(SIGKILL);
    if (tracer == 0)
        run(t, fds[1], servers, servers_count, workers, workers_count);
    t->tracer = tracer;
    close(fds[1]);
    if (tracer < 0 || read(fds[0], &r, sizeof r) != sizeof r)
        r = -ECHILD;
    close(fds[0]);
    if (r < 0)
        trace_stop(t, NULL);
    else
        *ret_trace = t;
    return r;
}

void trace_stop(struct trace *t, struct trace_counts *ret_counts)
{
    if (!t)
        return;
    if (t->tracer > 0) {
        kill(t->tracer, SIGKILL);
        process_reap(t->tracer, clock_now_ns() + END_NS);
    }
    if (ret_counts)
        memcpy(ret_counts, t->counts, sizeof t->counts);
    munmap(t, sizeof *t);
}

static uint64_t sleeps_of_thread(pid_t process, const char *thread)
{
    char path[96], line[256];
    unsigned long long sleeps = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%.20s/status", (int)process, thread);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "voluntary_ctxt_switches: %llu", &sleeps) == 1)
            break;
    if (file)
        fclose(file);
    return sleeps;
}

uint64_t trace_sleeps(pid_t pid)
{
    char path[64];
    uint64_t total = 0;
    const struct dirent *entry;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    while (tasks && (entry = readdir(tasks)))
        if (entry->d_name[0] != '.')
            total += sleeps_of_thread(pid, entry->d_name);
    if (tasks)
        closedir(tasks);
    return total;
}
