/* System calls about the processes of workers. Reads /proc; owns nothing but the pidfds that it
 * returns. */
#include "svc/pool/process.h"

#include "svc/base/cleanup.h"
#include "svc/base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLEAR_NS (5 * NS_PER_S)
#define VICTIMS_MAX 128            /* maximum number of processes that are ended at the same time */
#define ENVIRONMENT_MAX (4u << 20) /* larger than any environment that the kernel accepts */
#define STAT_BYTES 1024
enum stat_field { STAT_PARENT = 4, STAT_SESSION = 6 };

extern char **environ;

/* --- start --- */

static bool has_name_of(const char *variable, const char *other)
{
    size_t bytes = strcspn(variable, "=") + 1;
    return strncmp(variable, other, bytes) == 0;
}

static bool is_replaced(const char *variable, char *const *by)
{
    while (*by && !has_name_of(*by, variable))
        by++;
    return *by || has_name_of(COOKIE_VARIABLE "=", variable);
}

char **process_environment(char *cookie, char *const *variables)
{
    size_t count = 2, used = 0;
    for (char *const *v = variables; *v; v++)
        count++;
    for (char *const *v = environ; *v; v++)
        count++;
    char **all = calloc(count, sizeof *all);
    if (!all)
        return NULL;
    all[used++] = cookie;
    for (char *const *v = variables; *v; v++)
        all[used++] = *v;
    for (char *const *v = environ; *v; v++)
        if (!is_replaced(*v, variables))
            all[used++] = *v;
    return all;
}

/* Executes the program in the child. If this fails, sends the error number to the pool. All calls
 * are async-signal-safe, because the pool has another thread. */
static void process_become(const struct process_spec *spec, char **environment, int error_fd)
{
    sigset_t none;
    sigemptyset(&none);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    setsid();
    cookie_set_pid(environment[0], getpid());
    if (null >= 0 && dup2(null, STDIN_FILENO) >= 0 && dup2(spec->log_fd, STDOUT_FILENO) >= 0 &&
        dup2(spec->log_fd, STDERR_FILENO) >= 0 && sigprocmask(SIG_SETMASK, &none, NULL) == 0)
        execvpe(spec->program[0], spec->program, environment);
    int error = errno;
    ssize_t sent = write(error_fd, &error, sizeof error);
    _exit(sent == sizeof error ? 127 : 126);
}

/* Returns the error with which the child could not execute the program. Returns 0 if the program
 * runs: the kernel has then closed the pipe without a byte. */
static int await_program(int fd)
{
    int error = 0;
    ssize_t got;
    while ((got = read(fd, &error, sizeof error)) < 0 && errno == EINTR)
        ;
    return got == sizeof error ? -error : 0;
}

static int process_refuse(const struct process_spec *spec, pid_t pid, int error, struct err *err)
{
    waitpid(pid, NULL, 0);
    bool is_searched = !strchr(spec->program[0], '/');
    const char *path = getenv("PATH");
    return err_set(err, error,
                   "program '%s' cannot be executed: %s%s%s; give the path of a program",
                   spec->program[0], strerror(-error), is_searched ? ", searched in PATH " : "",
                   is_searched ? path ? path : "(not set)" : "");
}

static int fork_program(const struct process_spec *spec, char **environment, const int *error_pipe,
                        struct pool_process *ret_process, struct err *err)
{
    pid_t pid = fork();
    if (pid == 0)
        process_become(spec, environment, error_pipe[1]);
    if (pid < 0)
        return err_set(err, -errno, "no process: %s", strerror(errno));
    ret_process->pidfd = pidfd_open(pid, 0);
    ret_process->cookie.pid = pid;
    if (ret_process->pidfd >= 0)
        return 0;
    int error = -errno;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return err_set(err, error, "no pidfd of a process: %s", strerror(-error));
}

int process_start(const struct process_spec *spec, const struct cookie *cookie,
                  struct pool_process *ret_process, bool *ret_is_final, struct err *err)
{
    char text[COOKIE_BYTES];
    int error_pipe[2];
    struct pool_process started = {.is_own = true, .cookie = *cookie};
    *ret_is_final = false;
    cookie_write(cookie, spec->job, text);
    _cleanup_free_ char **environment = process_environment(text, spec->variables);
    if (!environment || pipe2(error_pipe, O_CLOEXEC) < 0)
        return err_set(err, environment ? -errno : -ENOMEM,
                       "no memory or descriptor for a process; raise the limits of this process");
    int error = fork_program(spec, environment, error_pipe, &started, err);
    close(error_pipe[1]);
    int refused = error < 0 ? 0 : await_program(error_pipe[0]);
    close(error_pipe[0]);
    if (refused < 0) {
        *ret_is_final = true;
        process_close(&started);
        return process_refuse(spec, started.cookie.pid, refused, err);
    }
    if (error == 0)
        *ret_process = started;
    return error;
}

void process_signal(const struct pool_process *process, int signal)
{
    if (process->pidfd >= 0)
        pidfd_send_signal(process->pidfd, signal, NULL, 0);
}

void process_close(struct pool_process *process)
{
    if (process->pidfd >= 0)
        close(process->pidfd);
    process->pidfd = -1;
}

/* --- /proc --- */

static size_t proc_read(pid_t pid, const char *name, char *buffer, size_t bytes)
{
    char path[64];
    size_t used = 0;
    ssize_t got = 1;
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && used < bytes && (got = read(fd, buffer + used, bytes - used)) > 0)
        used += (size_t)got;
    return used;
}

/* Returns a field of /proc/PID/stat behind the name of the process; -1: there is no such process,
 * or it has ended and waits for its parent. */
static long field_of(pid_t pid, enum stat_field field)
{
    char line[STAT_BYTES];
    line[proc_read(pid, "stat", line, sizeof line - 1)] = 0;
    const char *at = strrchr(line, ')');
    if (!at || at[1] != ' ' || at[2] == 'Z' || at[2] == 'X')
        return -1;
    for (int i = 2; at && i < (int)field; i++)
        at = strchr(at + 1, ' ');
    return at ? strtol(at, NULL, 10) : -1;
}

static bool find_cookie(pid_t pid, char *buffer, struct cookie *ret_cookie)
{
    size_t bytes = proc_read(pid, "environ", buffer, ENVIRONMENT_MAX);
    return cookie_find(buffer, bytes, ret_cookie);
}

bool process_find_cookie(pid_t pid, struct cookie *ret_cookie)
{
    _cleanup_free_ char *buffer = malloc(ENVIRONMENT_MAX);
    return buffer && find_cookie(pid, buffer, ret_cookie);
}

static pid_t next_pid(DIR *proc)
{
    const struct dirent *entry;
    while ((entry = readdir(proc))) {
        long pid = strtol(entry->d_name, NULL, 10);
        if (pid > 0 && pid != getpid())
            return (pid_t)pid;
    }
    return 0;
}

/* The pidfd is opened before /proc is read. If the number passes to another process meanwhile, a
 * signal reaches no process. */
void processes_each(uint64_t pool, process_found_fn found, void *context)
{
    _cleanup_free_ char *buffer = malloc(ENVIRONMENT_MAX);
    DIR *proc = buffer ? opendir("/proc") : NULL;
    pid_t pid;
    while (proc && (pid = next_pid(proc)) > 0) {
        struct cookie cookie;
        _cleanup_fd_ int pidfd = pidfd_open(pid, 0);
        if (pidfd >= 0 && find_cookie(pid, buffer, &cookie) && cookie.pool == pool)
            found(context, &cookie, pid, pidfd);
    }
    if (proc)
        closedir(proc);
}

/* --- end of all processes of a worker --- */

struct clearing {
    const struct pool_process *of; /* NULL: all children of this process */
    int victims[VICTIMS_MAX];
    uint32_t count;
};

static bool is_victim(const struct clearing *c, pid_t pid, char *buffer)
{
    struct cookie cookie;
    if (!c->of)
        return field_of(pid, STAT_PARENT) == getpid();
    const struct cookie *of = &c->of->cookie;
    if (pid == of->pid)
        return false;
    if (c->of->is_own && field_of(pid, STAT_SESSION) == of->pid)
        return true;
    return find_cookie(pid, buffer, &cookie) && cookie.pool == of->pool &&
           cookie.rank == of->rank && cookie.incarnation == of->incarnation;
}

static void kill_victims(struct clearing *c, char *buffer)
{
    DIR *proc = opendir("/proc");
    pid_t pid;
    c->count = 0;
    while (proc && c->count < VICTIMS_MAX && (pid = next_pid(proc)) > 0) {
        int pidfd = pidfd_open(pid, 0);
        if (pidfd >= 0 && is_victim(c, pid, buffer) &&
            pidfd_send_signal(pidfd, SIGKILL, NULL, 0) == 0)
            c->victims[c->count++] = pidfd;
        else if (pidfd >= 0)
            close(pidfd);
    }
    if (proc)
        closedir(proc);
}

static void await_victims(const struct clearing *c, uint64_t deadline_ns)
{
    for (uint32_t i = 0; i < c->count; i++) {
        struct pollfd end = {.fd = c->victims[i], .events = POLLIN};
        (void)poll(&end, 1, clock_poll_ms(deadline_ns, clock_now_ns()));
        close(c->victims[i]);
    }
}

/* Kills processes until none is found, because a killed process may have started another one
 * before. */
static uint32_t clear_processes(struct clearing *c)
{
    uint64_t deadline_ns = clock_now_ns() + CLEAR_NS;
    _cleanup_free_ char *buffer = malloc(ENVIRONMENT_MAX);
    if (!buffer)
        return 0;
    do {
        kill_victims(c, buffer);
        await_victims(c, deadline_ns);
        while (!c->of && waitpid(-1, NULL, WNOHANG) > 0)
            ;
    } while (c->count > 0 && clock_now_ns() < deadline_ns);
    return c->count;
}

uint32_t process_clear(const struct pool_process *process)
{
    struct clearing c = {.of = process};
    return clear_processes(&c);
}

bool processes_has_children(void)
{
    siginfo_t info = {0};
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

void processes_end_children(void)
{
    struct clearing c = {0};
    (void)clear_processes(&c);
}
