/* The engine of processes on this host. A worker is recognized by a cookie that has the number
 * of its own process, or by its process in the state of the folder. The pool holds the lock of the
 * folder, so no other pool starts or adopts these workers. Owns the pidfds of the workers. */
#include "svc/base/cleanup.h"
#include "svc/base/system/process.h"
#include "svc/pool/engine/engine.h"
#include "svc/pool/preload/preload.h"
#include "svc/pool/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* number in the epoll set for the descriptor of SIGCHLD; other numbers are ranks */
#define CHILDREN UINT32_MAX

struct local {
    struct pool_engine engine;
    const struct pool_folder *folder;
    struct pool_process processes[POOL_RANKS_MAX]; /* by rank */
    int epoll_fd, child_fd;
    bool had_children; /* this process had children before it started a worker */
    int error;         /* error of a worker that cannot be adopted; 0: none */
};

/* --- adoption --- */

/* Keeps the worker with the newest incarnation of its rank, and ends an older one, because a rank
 * has one process. */
static void adopt_worker(void *context, const struct cookie *cookie, pid_t pid, int pidfd)
{
    struct local *l = context;
    if (cookie->pid != pid || cookie->rank >= POOL_RANKS_MAX)
        return;
    struct pool_process *known = &l->processes[cookie->rank];
    if (known->pidfd >= 0 && known->cookie.incarnation > cookie->incarnation) {
        pidfd_send_signal(pidfd, SIGKILL, NULL, 0);
        return;
    }
    if (known->pidfd >= 0)
        process_signal(known, SIGKILL);
    process_close(known);
    *known = (struct pool_process){.pidfd = fcntl(pidfd, F_DUPFD_CLOEXEC, 0), .cookie = *cookie};
    if (known->pidfd < 0)
        l->error = -errno;
}

/* Returns whether the process of the rank's newest start runs. A process that has ended has its
 * identity until its parent has read the status, so the state is checked, too. */
static bool start_runs(const struct pool_folder *folder, uint32_t rank)
{
    uint32_t pid = (uint32_t)folder->pids[rank];
    char state = process_state(pid);
    return state != 0 && state != 'Z' && state != 'X' &&
           process_identity(pid) == folder->identities[rank];
}

/* Adopts workers without a cookie, whose processes are in the state of the folder. A worker loses
 * the cookie, for example, if it changes its title. */
static void adopt_stored(struct local *l)
{
    const struct pool_folder *folder = l->folder;
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++) {
        pid_t pid = folder->pids[rank];
        if (l->processes[rank].pidfd >= 0 || pid <= 0 || folder->identities[rank] == 0)
            continue;
        int pidfd = pidfd_open(pid, 0); /* opened before the comparison: see processes_each() */
        struct pool_process found = {.pidfd = pidfd,
                                     .cookie = {.pool = folder->pool,
                                                .incarnation = folder->incarnations[rank],
                                                .rank = rank,
                                                .pid = pid}};
        if (pidfd >= 0 && start_runs(folder, rank))
            l->processes[rank] = found;
        else if (pidfd >= 0)
            close(pidfd);
    }
}

static int local_watch(struct local *l, int fd, uint32_t number)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = number};
    return epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static int local_adopt(struct pool_engine *engine, struct err *err)
{
    struct local *l = (struct local *)engine;
    processes_each(l->folder->pool, adopt_worker, l);
    adopt_stored(l);
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX && l->error == 0; rank++)
        if (l->processes[rank].pidfd >= 0)
            l->error = local_watch(l, l->processes[rank].pidfd, rank);
    if (l->error == 0)
        return 0;
    /* A worker without a pidfd would count as ended, so the pool does not begin. */
    return err_set(err, l->error,
                   "folder %s: a worker cannot be adopted: %s; raise the limit of open files "
                   "(ulimit -n)",
                   l->folder->path, strerror(-l->error));
}

/* Ends a process whose worker had ended before this pool began. */
static void end_stray(void *context, const struct cookie *cookie, pid_t pid, int pidfd)
{
    const struct local *l = context;
    const struct pool_process *worker =
        cookie->rank < POOL_RANKS_MAX ? &l->processes[cookie->rank] : NULL;
    if (!worker || worker->pidfd < 0 || worker->cookie.incarnation != cookie->incarnation)
        pidfd_send_signal(pidfd, SIGKILL, NULL, 0);
}

static void local_end_strays(struct pool_engine *engine)
{
    struct local *l = (struct local *)engine;
    processes_each(l->folder->pool, end_stray, l);
}

/* --- workers --- */

static bool local_find(struct pool_engine *engine, uint32_t rank, struct cookie *ret_cookie)
{
    const struct pool_process *process = &((struct local *)engine)->processes[rank];
    *ret_cookie = process->cookie;
    return process->pidfd >= 0;
}

static int local_start_worker(struct pool_engine *engine, const struct engine_start *start,
                              bool *ret_is_final, struct err *err)
{
    struct local *l = (struct local *)engine;
    const struct cookie cookie = {
        .pool = l->folder->pool, .rank = start->rank, .incarnation = start->incarnation};
    *ret_is_final = false;
    _cleanup_fd_ int log_fd = folder_open_log(l->folder, start->rank, err);
    if (log_fd < 0)
        return log_fd;
    dprintf(log_fd, "gradpool run: rank %u of job %s, start %" PRIu64 "\n", start->rank,
            l->folder->job, start->incarnation);
    const struct process_spec spec = {.program = start->program,
                                      .variables = start->variables,
                                      .job = l->folder->job,
                                      .log_fd = log_fd};
    int error =
        preload_start_process(&spec, &cookie, &l->processes[start->rank], ret_is_final, err);
    return error < 0 ? error : 1;
}

static void local_signal(struct pool_engine *engine, uint32_t rank, int signal)
{
    process_signal(&((struct local *)engine)->processes[rank], signal);
}

static uint64_t local_pool_of(struct pool_engine *engine, uint32_t pid)
{
    struct cookie cookie;
    return process_find_cookie((pid_t)pid, &cookie) ? cookie.pool : 0;
}

/* --- ends --- */

static struct pool_process *local_find_child(struct local *l, pid_t pid)
{
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++) {
        struct pool_process *process = &l->processes[rank];
        if (process->pidfd >= 0 && process->is_own && process->cookie.pid == pid)
            return process;
    }
    return NULL;
}

static void local_ended(struct pool_process *process, struct engine_event event,
                        struct engine_event *ret_event)
{
    event.kind = ENGINE_ENDED;
    event.rank = process->cookie.rank;
    process_close(process);
    *ret_event = event;
}

/* Reads the end of a child. All processes of a worker are ended before the status of the worker is
 * read. A child without a rank was started by a worker, and its parent has ended. */
static bool local_reap(struct local *l, struct engine_event *ret_event)
{
    siginfo_t info = {0};
    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid > 0) {
        struct pool_process *process = local_find_child(l, info.si_pid);
        struct engine_event event = {.left = process ? process_clear(process) : 0};
        pid_t pid = info.si_pid;
        info = (siginfo_t){0};
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG) < 0)
            return false;
        event.end = info.si_code == CLD_EXITED ? END_EXIT : END_SIGNAL;
        event.number = info.si_status;
        if (process) {
            local_ended(process, event, ret_event);
            return true;
        }
        info = (siginfo_t){0};
    }
    return false;
}

static bool local_next(struct pool_engine *engine, struct engine_event *ret_event)
{
    struct local *l = (struct local *)engine;
    struct epoll_event found;
    struct signalfd_siginfo info;
    while (read(l->child_fd, &info, sizeof info) == (ssize_t)sizeof info)
        ;
    if (local_reap(l, ret_event))
        return true;
    while (epoll_wait(l->epoll_fd, &found, 1, 0) > 0 && found.data.u32 != CHILDREN) {
        struct pool_process *process = &l->processes[found.data.u32];
        struct engine_event event = {.end = END_UNKNOWN, .left = process_clear(process)};
        local_ended(process, event, ret_event);
        return true;
    }
    return false;
}

static int local_fd(struct pool_engine *engine) { return ((struct local *)engine)->epoll_fd; }

static void local_end(struct pool_engine *engine)
{
    struct local *l = (struct local *)engine;
    if (!l->had_children)
        processes_end_children();
    close(l->epoll_fd);
    free(l);
}

int engine_local_create(const struct pool_folder *folder, struct pool_engine **ret_engine,
                        struct err *err)
{
    static const struct engine_calls calls = {.name = "local",
                                              .adopt = local_adopt,
                                              .end_strays = local_end_strays,
                                              .find = local_find,
                                              .start = local_start_worker,
                                              .signal = local_signal,
                                              .fd = local_fd,
                                              .next = local_next,
                                              .pool_of = local_pool_of,
                                              .end = local_end};
    struct local *l = calloc(1, sizeof *l);
    sigset_t children;
    if (!l)
        return err_set(err, -ENOMEM, "no memory for a pool; raise the limits of this process");
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++)
        l->processes[rank].pidfd = -1;
    l->engine.calls = &calls;
    l->folder = folder;
    l->had_children = !preload_is_inherited() && processes_has_children();
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    l->child_fd = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (l->child_fd < 0 || l->epoll_fd < 0 || local_watch(l, l->child_fd, CHILDREN) < 0 ||
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
        return err_set(err, -errno, "no signals of children: %s", strerror(errno));
    *ret_engine = &l->engine;
    return 0;
}
