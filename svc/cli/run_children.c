/* Starts processes, passes on what they print line by line, and ends them all when one fails. Owns
 * the processes and their pipes. Must never leave one behind: the kernel ends them with us. */
#include "svc/cli/run_children.h"

#include "svc/base/clock.h"
#include "svc/base/signals.h"
#include "svc/cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINE_BYTES 4096 /* a longer one is cut in two */
#define PATIENCE_NS (5 * NS_PER_S)

struct stream {
    int fd, to; /* fd -1: ended */
    uint32_t rank;
    size_t have;
    char line[LINE_BYTES];
};

struct children {
    const struct run_plan *plan;
    pid_t *pids;            /* 0: ended */
    struct stream *streams; /* two each: standard output, standard error */
    struct pollfd *fds;
    int signal_fd, code;
    uint32_t alive;
    uint64_t kill_ns; /* when patience ends; 0: nobody is being ended */
    bool is_killed;
};

/* --- output --- */

static void write_line(const struct children *c, struct stream *s, size_t bytes)
{
    FILE *to = s->to == STDOUT_FILENO ? stdout : stderr;
    if (!c->plan->is_plain)
        fprintf(to, "[%u] ", s->rank);
    fwrite(s->line, 1, bytes, to);
    if (bytes == 0 || s->line[bytes - 1] != '\n')
        fputc('\n', to);
    fflush(to);
    s->have -= bytes;
    memmove(s->line, s->line + bytes, s->have);
}

static void write_lines(const struct children *c, struct stream *s, bool is_end)
{
    char *end;
    while ((end = memchr(s->line, '\n', s->have)))
        write_line(c, s, (size_t)(end - s->line) + 1);
    if (s->have == sizeof s->line || (is_end && s->have > 0))
        write_line(c, s, s->have);
}

static void pass_on(const struct children *c, struct stream *s)
{
    ssize_t got = read(s->fd, s->line + s->have, sizeof s->line - s->have);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (got > 0) {
        s->have += (size_t)got;
        return write_lines(c, s, false);
    }
    write_lines(c, s, true);
    close(s->fd);
    s->fd = -1;
}

/* --- starting --- */

/* In the child. What it cannot do is the same for all: it is said once for each. */
static void become(const struct children *c, uint32_t index, const int *to, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(CLI_FAILED);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(to[0], STDOUT_FILENO) < 0 || dup2(to[1], STDERR_FILENO) < 0)
        _exit(CLI_FAILED);
    c->plan->prepare(c->plan, index);
    execvp(c->plan->program[0], c->plan->program);
    int error = errno;
    fprintf(stderr, "gradpool run: %s: %s\n", c->plan->program[0], strerror(error));
    fflush(stderr);
    _exit(error == ENOENT ? 127 : 126);
}

static int start_one(struct children *c, uint32_t index)
{
    int out[2] = {-1, -1}, error[2] = {-1, -1};
    pid_t parent = getpid();
    if (pipe2(out, O_CLOEXEC) < 0)
        return -errno;
    if (pipe2(error, O_CLOEXEC) < 0) {
        int r = -errno;
        close(out[0]);
        close(out[1]);
        return r;
    }
    const int to[2] = {out[1], error[1]}, from[2] = {out[0], error[0]};
    pid_t pid = fork();
    int r = pid < 0 ? -errno : 0;
    if (pid == 0)
        become(c, index, to, parent);
    for (int i = 0; i < 2; i++) {
        struct stream *s = &c->streams[2 * index + (uint32_t)i];
        close(to[i]);
        *s = (struct stream){from[i], i == 0 ? STDOUT_FILENO : STDERR_FILENO,
                             c->plan->first + index, 0, ""};
    }
    c->pids[index] = pid > 0 ? pid : 0;
    c->alive += pid > 0;
    return r;
}

/* --- ending --- */

static void signal_all(const struct children *c, int number)
{
    for (uint32_t i = 0; i < c->plan->count; i++)
        if (c->pids[i] > 0)
            kill(c->pids[i], number);
}

static void end_all(struct children *c)
{
    if (c->kill_ns > 0)
        return;
    c->kill_ns = clock_now_ns() + PATIENCE_NS;
    signal_all(c, SIGTERM);
}

static void describe(int status, char *text, size_t text_bytes)
{
    if (WIFSIGNALED(status))
        snprintf(text, text_bytes, "was ended by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(text, text_bytes, "ended with exit code %d", WEXITSTATUS(status));
}

static void note_end(struct children *c, uint32_t index, int status)
{
    char text[128];
    c->pids[index] = 0;
    c->alive--;
    if (c->alive == 0 && c->kill_ns == 0)
        c->kill_ns = clock_now_ns() + PATIENCE_NS; /* with what they have left behind */
    else if (c->kill_ns > 0)
        return; /* we wanted it */
    if (status == 0)
        return;
    describe(status, text, sizeof text);
    c->code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    fprintf(stderr, "gradpool run: rank %u %s%s\n", c->plan->first + index, text,
            c->alive > 0 ? "; the others are ended" : "");
    if (c->alive > 0)
        end_all(c);
}

static void reap(struct children *c)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (uint32_t i = 0; i < c->plan->count; i++)
            if (c->pids[i] == pid)
                note_end(c, i, status);
}

static void take_signals(struct children *c)
{
    struct signalfd_siginfo info;
    while (read(c->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            continue;
        if (c->code == 0)
            c->code = 128 + (int)info.ssi_signo;
        end_all(c);
    }
    reap(c);
}

/* --- waiting --- */

static bool is_over(const struct children *c)
{
    for (uint32_t i = 0; i < 2 * c->plan->count; i++)
        if (c->streams[i].fd >= 0 && !c->is_killed)
            return false;
    return c->alive == 0;
}

static int timeout_ms(struct children *c)
{
    uint64_t now_ns = clock_now_ns();
    if (c->kill_ns == 0 || c->is_killed)
        return -1;
    if (now_ns < c->kill_ns)
        return clock_poll_ms(c->kill_ns, now_ns);
    c->is_killed = true; /* what they have left behind may hold their pipes */
    signal_all(c, SIGKILL);
    return -1;
}

static void turn(struct children *c)
{
    uint32_t count = 2 * c->plan->count;
    c->fds[count] = (struct pollfd){.fd = c->signal_fd, .events = POLLIN};
    for (uint32_t i = 0; i < count; i++)
        c->fds[i] = (struct pollfd){.fd = c->streams[i].fd, .events = POLLIN};
    if (poll(c->fds, count + 1, timeout_ms(c)) <= 0)
        return;
    for (uint32_t i = 0; i < count; i++)
        if (c->fds[i].revents && c->streams[i].fd >= 0)
            pass_on(c, &c->streams[i]);
    if (c->fds[count].revents)
        take_signals(c);
}

static int start_all(struct children *c)
{
    int r = 0;
    for (uint32_t i = 0; i < c->plan->count && r == 0; i++)
        r = start_one(c, i);
    if (r == 0)
        return 0;
    fprintf(stderr, "gradpool run: no process for each rank: %s\n", strerror(-r));
    c->code = CLI_FAILED;
    end_all(c);
    return r;
}

static int allocate(struct children *c)
{
    sigset_t watched = signals_that_end();
    uint32_t count = c->plan->count;
    sigaddset(&watched, SIGCHLD);
    sigprocmask(SIG_BLOCK, &watched, NULL);
    c->signal_fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    c->pids = calloc(count, sizeof *c->pids);
    c->streams = calloc(2 * (size_t)count, sizeof *c->streams);
    c->fds = calloc(2 * (size_t)count + 1, sizeof *c->fds);
    for (uint32_t i = 0; c->streams && i < 2 * count; i++)
        c->streams[i].fd = -1;
    return c->signal_fd >= 0 && c->pids && c->streams && c->fds ? 0 : -ENOMEM;
}

int run_children(const struct run_plan *plan)
{
    struct children c = {.plan = plan};
    if (allocate(&c) < 0) {
        fprintf(stderr, "gradpool run: out of memory or descriptors\n");
        return CLI_FAILED;
    }
    (void)start_all(&c);
    while (!is_over(&c))
        turn(&c);
    close(c.signal_fd);
    free(c.pids);
    free(c.streams);
    free(c.fds);
    return c.code;
}
