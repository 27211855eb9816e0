/* Starts processes, forwards their output, and ends all of them when one fails or a signal arrives.
 * Owns the processes: the kernel kills them at the end of this process. */
#include "svc/cli/run/run_children.h"

#include "svc/base/clock.h"
#include "svc/base/system/signals.h"
#include "svc/cli/cli.h"
#include "svc/cli/run/run_output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Seconds in which the processes have to end: after the forwarded signal, and after SIGTERM. */
#define ASKED_S 10
#define TOLD_S 5
/* A signal that was sent to a process and to its group arrives twice, at most this time apart. */
#define ECHO_NS (200 * NS_PER_MS)

/* Steps by which the processes are ended, in this order. */
enum ending {
    NOT_ENDING,
    ASKED, /* a signal was forwarded to the processes */
    TOLD,  /* SIGTERM was sent to the processes */
    KILLED,
};

struct children {
    const struct run_plan *plan;
    pid_t *pids; /* 0: the process has ended */
    /* Two entries for each process: its standard output and its standard error. NULL if
     * `is_plain`. */
    struct run_output *outputs;
    /* destinations of this process's standard output and standard error */
    struct run_screen screens[2];
    /* destination of standard error, which may also be the destination of standard output */
    struct run_screen *error_screen;
    struct pollfd *fds;
    int signal_fd, code;
    uint32_t outputs_count, alive;
    enum ending ending;
    /* time at which the present step began, and at which the next one begins */
    uint64_t since_ns, next_ns;
};

/* Ends an unfinished line of a worker before this process prints a line. */
static void break_line(const struct children *c) { run_screen_break(c->error_screen, stderr); }

/* --- start --- */

/* Executes the program in the child. A child that fails prints its own error. */
static void become(const struct children *c, uint32_t index, const int *to, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(CLI_FAILED);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (to && (dup2(to[0], STDOUT_FILENO) < 0 || dup2(to[1], STDERR_FILENO) < 0))
        _exit(CLI_FAILED);
    c->plan->prepare(c->plan, index);
    execvp(c->plan->program[0], c->plan->program);
    int error = errno;
    fprintf(stderr, "gradpool run: %s: %s\n", c->plan->program[0], strerror(error));
    fflush(stderr);
    _exit(error == ENOENT ? 127 : 126);
}

/* Starts one process. `to`: descriptors for its standard output and standard error; NULL: those of
 * this process. */
static int start_process(struct children *c, uint32_t index, const int *to)
{
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        become(c, index, to, parent);
    if (pid < 0)
        return -errno;
    c->pids[index] = pid;
    c->alive++;
    return 0;
}

static int start_one(struct children *c, uint32_t index)
{
    int out[2] = {-1, -1}, error[2] = {-1, -1};
    uint32_t rank = c->plan->first + index;
    if (c->plan->is_plain)
        return start_process(c, index, NULL);
    if (pipe2(out, O_CLOEXEC) < 0)
        return -errno;
    if (pipe2(error, O_CLOEXEC) < 0) {
        int r = -errno;
        close(out[0]);
        close(out[1]);
        return r;
    }
    const int to[2] = {out[1], error[1]};
    int r = start_process(c, index, to);
    close(out[1]);
    close(error[1]);
    run_output_init(&c->outputs[2 * index], out[0], stdout, &c->screens[0], rank);
    run_output_init(&c->outputs[2 * index + 1], error[0], stderr, c->error_screen, rank);
    return r;
}

/* --- end --- */

static void signal_all(const struct children *c, int number)
{
    for (uint32_t i = 0; i < c->plan->count; i++)
        if (c->pids[i] > 0)
            kill(c->pids[i], number);
}

/* Sends a step's signal to all processes. After SIGKILL nothing more is read from the pipes,
 * because descendants may keep them open. */
static void end_all(struct children *c, enum ending ending)
{
    if (ending <= c->ending)
        return;
    c->ending = ending;
    c->since_ns = clock_now_ns();
    c->next_ns = ending == KILLED ? UINT64_MAX
                                  : c->since_ns + (ending == ASKED ? ASKED_S : TOLD_S) * NS_PER_S;
    if (ending != ASKED)
        signal_all(c, ending == TOLD ? SIGTERM : SIGKILL);
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
    bool is_wanted = c->ending != NOT_ENDING;
    c->pids[index] = 0;
    c->alive--;
    if (c->alive == 0)
        end_all(c, TOLD); /* limits the time of reading pipes that descendants keep open */
    if (is_wanted || status == 0)
        return;
    describe(status, text, sizeof text);
    c->code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    break_line(c);
    fprintf(stderr, "gradpool run: rank %u %s%s\n", c->plan->first + index, text,
            c->alive > 0 ? "; the others are ended" : "");
    end_all(c, TOLD);
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

/* Forwards a signal to the workers, except the SIGINT of a terminal. The terminal sends SIGINT to
 * the workers as well, and a second SIGINT would interrupt their handlers. */
static void pass_on(const struct children *c, const struct signalfd_siginfo *info)
{
    bool is_key = info->ssi_signo == SIGINT && info->ssi_code == SI_KERNEL;
    for (uint32_t i = 0; i < c->plan->count; i++)
        if (c->pids[i] > 0 && !(is_key && getpgid(c->pids[i]) == getpgrp()))
            kill(c->pids[i], (int)info->ssi_signo);
}

static void obey(struct children *c, const struct signalfd_siginfo *info)
{
    int number = (int)info->ssi_signo;
    if (c->ending != NOT_ENDING && clock_now_ns() - c->since_ns < ECHO_NS)
        return;
    if (c->code == 0)
        c->code = 128 + number;
    if (c->ending != NOT_ENDING)
        return end_all(c, c->ending + 1); /* each further signal starts the next step */
    pass_on(c, info);
    end_all(c, ASKED);
    break_line(c);
    fprintf(stderr, "gradpool run: %s: workers have %d s to end; a second signal hurries them\n",
            strsignal(number), ASKED_S);
}

static void take_signals(struct children *c)
{
    struct signalfd_siginfo info;
    while (read(c->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo != SIGCHLD)
            obey(c, &info);
    reap(c);
}

/* --- loop --- */

static bool is_over(const struct children *c)
{
    for (uint32_t i = 0; i < c->outputs_count; i++)
        if (c->outputs[i].fd >= 0 && c->ending != KILLED)
            return false;
    return c->alive == 0;
}

static uint64_t next_ns(const struct children *c)
{
    uint64_t next_ns = c->ending == NOT_ENDING ? UINT64_MAX : c->next_ns;
    for (uint32_t i = 0; i < c->outputs_count; i++)
        if (c->outputs[i].due_ns < next_ns)
            next_ns = c->outputs[i].due_ns;
    return next_ns;
}

static void keep_time(struct children *c)
{
    uint64_t now_ns = clock_now_ns();
    for (uint32_t i = 0; i < c->outputs_count; i++)
        run_output_hurry(&c->outputs[i], now_ns);
    if (c->ending != NOT_ENDING && now_ns >= c->next_ns)
        end_all(c, c->ending + 1);
}

static void turn(struct children *c)
{
    uint32_t count = c->outputs_count;
    c->fds[count] = (struct pollfd){.fd = c->signal_fd, .events = POLLIN};
    for (uint32_t i = 0; i < count; i++)
        c->fds[i] = (struct pollfd){.fd = c->outputs[i].fd, .events = POLLIN};
    if (poll(c->fds, count + 1, clock_poll_ms(next_ns(c), clock_now_ns())) > 0) {
        for (uint32_t i = 0; i < count; i++)
            if (c->fds[i].revents && c->outputs[i].fd >= 0)
                run_output_read(&c->outputs[i]);
        if (c->fds[count].revents)
            take_signals(c);
    }
    keep_time(c);
}

static int start_all(struct children *c)
{
    int error = 0;
    for (uint32_t i = 0; i < c->plan->count && error == 0; i++)
        error = start_one(c, i);
    if (error == 0)
        return 0;
    fprintf(stderr, "gradpool run: no process for each rank: %s\n", strerror(-error));
    c->code = CLI_FAILED;
    end_all(c, TOLD);
    return error;
}

static bool is_same_file(int a, int b)
{
    struct stat of_a, of_b;
    return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

static int allocate(struct children *c)
{
    sigset_t watched = signals_that_end();
    uint32_t count = c->plan->count;
    sigaddset(&watched, SIGCHLD);
    sigprocmask(SIG_BLOCK, &watched, NULL);
    c->signal_fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    c->error_screen = &c->screens[is_same_file(STDOUT_FILENO, STDERR_FILENO) ? 0 : 1];
    c->pids = calloc(count, sizeof *c->pids);
    c->outputs_count = c->plan->is_plain ? 0 : 2 * count;
    c->outputs = calloc(2 * (size_t)count, sizeof *c->outputs);
    c->fds = calloc(2 * (size_t)count + 1, sizeof *c->fds);
    for (uint32_t i = 0; c->outputs && i < c->outputs_count; i++)
        run_output_init(&c->outputs[i], -1, stderr, c->error_screen, 0);
    return c->signal_fd >= 0 && c->pids && c->outputs && c->fds ? 0 : -ENOMEM;
}

int run_children(const struct run_plan *plan)
{
    struct children c = {.plan = plan};
    if (allocate(&c) < 0) {
        fprintf(stderr,
                "gradpool run: no memory or descriptors for %u workers; raise the limits of this "
                "process (ulimit -n), or start fewer\n",
                plan->count);
        return CLI_FAILED;
    }
    (void)start_all(&c);
    while (!is_over(&c))
        turn(&c);
    for (uint32_t i = 0; i < c.outputs_count; i++)
        run_output_end(&c.outputs[i]);
    close(c.signal_fd);
    free(c.pids);
    free(c.outputs);
    free(c.fds);
    return c.code;
}
