/* Starts aggregator processes by fork and exec of this program. Owns no state. The caller holds the
 * pidfd of a process, or a pipe if pidfd_open() is refused. */
#include "svc/coordinator/fleet/provisioner.h"
#include "svc/base/cleanup.h"
#include "svc/base/log.h"
#include "svc/base/system/shortage.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENTS_MAX 32
#define NUMBER_BYTES 24

struct command {
    char *argv[ARGUMENTS_MAX];
    int count;
    char numbers[5][NUMBER_BYTES];
};

static void add(struct command *command, const char *option, const char *value)
{
    if (!value || !*value)
        return;
    command->argv[command->count++] = (char *)option;
    command->argv[command->count++] = (char *)value;
}

static void add_number(struct command *command, int slot, const char *option, uint64_t value)
{
    snprintf(command->numbers[slot], NUMBER_BYTES, "%" PRIu64, value);
    add(command, option, command->numbers[slot]);
}

static void build(struct command *command, const struct provision *what)
{
    *command = (struct command){.argv = {(char *)"gradpool", (char *)"aggregator"}, .count = 2};
    add(command, "--join", what->join);
    add(command, "--service", what->service);
    add(command, "--cores", what->cores);
    add(command, "--advertise", what->advertise);
    add(command, "--interface", what->interface_name);
    add(command, "--allow-uid", what->allow_uids);
    add_number(command, 0, "--lanes-per-core", what->lanes_per_core);
    add_number(command, 1, "--data-port", what->data_port);
    if (what->network_gbit)
        add_number(command, 3, "--network-gbit", what->network_gbit);
    add_number(command, 2, "--orphan-timeout", what->orphan_timeout_ns / UINT64_C(1000000000));
    add_number(command, 4, "--leave-timeout", what->leave_timeout_ns / UINT64_C(1000000000));
}

/* Runs in the child. Only async-signal-safe calls are allowed before exec. */
static void become(const struct command *command, char **environment, int pipe_end)
{
    if (pipe_end >= 0)
        /* the child keeps this end of the pipe open until the aggregator ends */
        fcntl(pipe_end, F_SETFD, 0);
    /* SIGTERM and SIGINT stay blocked until the aggregator reads these signals from a signalfd. A
     * library's constructor installs handlers for both signals, so a signal during the load of the
     * program would end the process without a message. */
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGTERM);
    sigaddset(&held, SIGINT);
    sigprocmask(SIG_SETMASK, &held, NULL);
    setpgid(0, 0);
    /* The end of the coordinator makes this process group an orphan. If a process of the group is
     * stopped at this time, the kernel sends SIGHUP to the group, and SIGHUP must not end the
     * aggregator. */
    sigaction(SIGHUP, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
    execve("/proc/self/exe", command->argv, environment);
    _exit(127);
}

static char **environment_with(char *grant)
{
    size_t count = 0, kept = 0;
    while (environ[count])
        count++;
    char **copy = calloc(count + 2, sizeof *copy);
    for (size_t i = 0; copy && i < count; i++)
        if (strncmp(environ[i], "GRADPOOL_GRANT=", 15) != 0)
            copy[kept++] = environ[i];
    if (copy)
        copy[kept] = grant;
    return copy;
}

static void close_end(int *end)
{
    if (*end >= 0)
        close(*end);
    *end = -1;
}

/* If a sandbox refuses pidfd_open(), opens a pipe instead. The aggregator inherits one end. The
 * other end becomes readable when the aggregator ends; no data is ever written. If pidfds are
 * allowed, both ends stay -1. */
static int open_pipe(int ends[2])
{
    int fd = pidfd_open(getpid(), 0);
    if (fd < 0 && shortage_is_refusal(-errno)) {
        log_warn_rarely(
            "the system call pidfd_open is refused (%s): the service detects the end of a process "
            "only by its connection or a pipe; allow pidfd_open in the seccomp profile",
            err_text(-errno));
        return pipe2(ends, O_CLOEXEC) < 0 ? -errno : 0;
    }
    close_end(&fd);
    return 0;
}

static int local_start(struct provisioner *p, const struct provision *what,
                       struct provisioned *ret_it, struct err *err)
{
    struct command command;
    char grant[96], text[SHORTAGE_BYTES];
    snprintf(grant, sizeof grant, "GRADPOOL_GRANT=%s", what->grant);
    _cleanup_free_ char **environment = environment_with(grant);
    if (!environment)
        return err_set(err, -ENOMEM,
                       "gradpool serve has no memory for the environment of an aggregator; raise "
                       "its memory limit");
    int ends[2] = {-1, -1};
    int r = open_pipe(ends);
    if (r < 0)
        return err_set(err, r, "the service cannot watch a local aggregator: %s",
                       shortage_text(r, SHORTAGE_OTHER, text, sizeof text));
    build(&command, what);
    pid_t pid = fork();
    if (pid < 0) {
        r = -errno;
        close_end(&ends[0]);
        close_end(&ends[1]);
        return err_set(err, r, "the service cannot start a local aggregator: %s",
                       shortage_text(r, SHORTAGE_THREADS, text, sizeof text));
    }
    if (pid == 0)
        become(&command, environment, ends[1]);
    close_end(&ends[1]);
    int fd = ends[0] >= 0 ? ends[0] : pidfd_open(pid, 0);
    if (fd < 0) {
        int error = -errno;
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return err_set(err, error, "the service cannot watch a local aggregator: %s",
                       err_text(error));
    }
    *ret_it = (struct provisioned){.pid = pid, .watch_fd = fd};
    return 0;
}

static bool is_pipe(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode);
}

static bool local_collect(struct provisioner *p, const struct provisioned *it, char *buffer,
                          size_t buffer_bytes)
{
    int status = 0, how = WNOHANG;
    if (is_pipe(it->watch_fd)) {
        /* The aggregator closes the pipe only at its end. The kill limits the wait in waitpid();
         * the exit code may be lost. */
        kill(it->pid, SIGKILL);
        how = 0;
    }
    if (waitpid(it->pid, &status, how) != it->pid)
        snprintf(buffer, buffer_bytes, "ended");
    else if (WIFSIGNALED(status))
        snprintf(buffer, buffer_bytes, "killed by signal %d", WTERMSIG(status));
    else
        snprintf(buffer, buffer_bytes, "exit code %d", WEXITSTATUS(status));
    return WIFEXITED(status) && WEXITSTATUS(status) != 0;
}

static void local_stop(struct provisioner *p, const struct provisioned *it, bool now)
{
    int number = now ? SIGKILL : SIGTERM;
    if (is_pipe(it->watch_fd))
        /* the child was not reaped yet, so the kernel has not given its number to another
         * process */
        kill(it->pid, number);
    else
        pidfd_send_signal(it->watch_fd, number, NULL, 0);
}

static void local_destroy(struct provisioner *p) { free(p); }

static const struct provisioner_ops local_ops = {
    .start = local_start,
    .collect = local_collect,
    .stop = local_stop,
    .destroy = local_destroy,
};

int provisioner_local_create(struct provisioner **ret_provisioner)
{
    struct provisioner *p = calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    p->ops = &local_ops;
    *ret_provisioner = p;
    return 0;
}
