/* Owns the parent of the workers and the socket to the parent. The protocol is described in
 * client/python/gradpool/_preload/. */
#include "svc/pool/preload/preload.h"

#include "svc/base/cleanup.h"
#include "svc/base/clock.h"
#include "svc/pool/internal.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define IMPORT_NS (600 * NS_PER_S) /* longest import: torch needs two minutes from a cold disk */
#define FORK_S 10                  /* longest wait for a forked worker, in s */
#define END_MS 200
#define TEXT_BYTES 512
#define ROOM_BYTES 4096 /* place in which /proc shows the variables of a forked worker */
#define WORDS_MAX 6     /* words before those of the program, and a NULL */
#define SOCKET_VARIABLE "_GRADPOOL_PRELOAD"
#define ROOM_VARIABLE "_GRADPOOL_ROOM"

/* The parent of this process's workers. */
static struct preload {
    const char *modules;
    int fd; /* -1: there is no parent, so workers are started directly */
    bool is_ready;
    uint64_t due_ns;             /* time at which the import has to end */
    struct pool_process process; /* the parent */
} parent = {.fd = -1, .process.pidfd = -1};

/* --- command line --- */

static bool is_module(const char *name, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("_.", name[i]) && name[i] > 0)
            return false;
    return bytes > 0 && name[0] != '.' && name[bytes - 1] != '.';
}

const char *preload_find_mistake(const char *modules, char *const *program)
{
    const char *slash = program ? strrchr(program[0], '/') : NULL;
    for (const char *at = modules; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!is_module(at, strcspn(at, ",")))
            return "--preload: expected names of Python modules, such as torch,numpy";
    if (program && strncmp(slash ? slash + 1 : program[0], "python", 6) != 0)
        return "--preload is for programs in Python: give python3 and a script, or leave out "
               "--preload";
    return NULL;
}

/* --- the end of the parent --- */

/* Kills the parent, which is a child of this process. The forked workers are children of this
 * process, too, and continue. */
void preload_end(void)
{
    if (parent.fd >= 0)
        close(parent.fd);
    parent.fd = -1;
    if (parent.process.pidfd < 0)
        return;
    process_signal(&parent.process, SIGKILL);
    process_clear(&parent.process);
    waitpid(parent.process.cookie.pid, NULL, 0);
    process_close(&parent.process);
}

static void parent_lost(const char *text)
{
    pool_say("--preload %s: %s. Workers are started without --preload", parent.modules, text);
    preload_end();
}

/* --- the start of the parent --- */

bool preload_is_inherited(void) { return getenv(SOCKET_VARIABLE) != NULL; }

static int parent_fail(struct err *err, int number)
{
    return err_set(err, -number, "%s", strerror(number));
}

/* Uses the parent that a study has started. A variable has its descriptor and its process
 * number. */
static int parent_inherit(struct err *err)
{
    int pid = 0;
    int count = sscanf(getenv(SOCKET_VARIABLE), "%d:%d", &parent.fd, &pid);
    unsetenv(SOCKET_VARIABLE);
    if (count != 2 || pid <= 0 || fcntl(parent.fd, F_SETFD, FD_CLOEXEC) < 0)
        return parent_fail(err, EBADF);
    parent.process =
        (struct pool_process){.pidfd = pidfd_open(pid, 0), .is_own = true, .cookie = {.pid = pid}};
    return parent.process.pidfd < 0 ? parent_fail(err, errno) : 0;
}

static char **parent_words(const char *descriptor, char **program)
{
    size_t count = 0;
    while (program[count])
        count++;
    char **words = calloc(WORDS_MAX + count + 1, sizeof *words);
    const char *const head[] = {program[0], "-m", "gradpool._preload", descriptor, parent.modules};
    if (!words)
        return NULL;
    memcpy(words, head, sizeof head);
    memcpy(words + sizeof head / sizeof *head, program, count * sizeof *words);
    return words;
}

/* Returns the variables of the parent: `room` and the variables of the workers, because libraries
 * read OMP_NUM_THREADS during their import. The caller frees the list. NULL: no memory. */
static char **parent_variables(char *room, char *const *variables)
{
    size_t count = 0;
    while (variables[count])
        count++;
    char **all = calloc(count + 2, sizeof *all);
    if (!all)
        return NULL;
    all[0] = room;
    memcpy(all + 1, variables, count * sizeof *all);
    return all;
}

static int parent_start(int theirs, char **program, char *const *variables,
                        const struct pool_folder *folder, struct err *err)
{
    char descriptor[16], room[ROOM_BYTES] = ROOM_VARIABLE "=";
    bool is_final;
    memset(room + strlen(room), ' ', sizeof room - strlen(room) - 1);
    snprintf(descriptor, sizeof descriptor, "%d", theirs);
    /* no worker has the rank of this cookie, so the next pool of the folder ends the parent */
    const struct cookie cookie = {.pool = folder->pool, .rank = POOL_RANKS_MAX};
    _cleanup_fd_ int log_fd = folder_open_file(folder, "preload.log", err);
    if (log_fd < 0)
        return log_fd;
    _cleanup_free_ char **words = parent_words(descriptor, program);
    _cleanup_free_ char **all = parent_variables(room, variables);
    if (!words || !all)
        return parent_fail(err, ENOMEM);
    const struct process_spec spec = {
        .program = words, .variables = all, .job = folder->job, .log_fd = log_fd};
    return process_start(&spec, &cookie, &parent.process, &is_final, err);
}

static int parent_begin(char **program, char *const *variables, const struct pool_folder *folder,
                        struct err *err)
{
    int fds[2];
    if (preload_is_inherited())
        return parent_inherit(err);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
        return parent_fail(err, errno);
    parent.fd = fds[0];
    _cleanup_fd_ int theirs = fds[1];
    if (fcntl(theirs, F_SETFD, 0) < 0)
        return parent_fail(err, errno);
    return parent_start(theirs, program, variables, folder, err);
}

void preload_begin(const char *modules, char **program, char *const *variables,
                   const struct pool_folder *folder)
{
    struct err err;
    parent.modules = modules;
    parent.due_ns = clock_now_ns() + IMPORT_NS;
    if (parent_begin(program, variables, folder, &err) < 0)
        parent_lost(err.text);
}

/* --- the import --- */

int preload_fd(void) { return parent.fd; }

bool preload_is_importing(void) { return parent.fd >= 0 && !parent.is_ready; }

uint64_t preload_due(void) { return preload_is_importing() ? parent.due_ns : UINT64_MAX; }

static void parent_told(const char *text, ssize_t bytes)
{
    if (bytes <= 0)
        parent_lost(parent.is_ready
                        ? "the process that forks workers has ended"
                        : "the process that imports modules has ended; see preload.log");
    else if (strcmp(text, "ready") != 0)
        parent_lost(text);
    else
        parent.is_ready = true;
}

void preload_turn(void)
{
    char text[TEXT_BYTES];
    if (parent.fd < 0)
        return;
    ssize_t got = recv(parent.fd, text, sizeof text - 1, MSG_DONTWAIT);
    text[got > 0 ? got : 0] = '\0';
    if (got >= 0 || errno != EAGAIN)
        parent_told(text, got);
    else if (clock_now_ns() >= preload_due())
        parent_lost("the import has not ended within 600 s; see preload.log");
}

/* --- workers --- */

static size_t start_pack_texts(char *const *texts, char *data)
{
    size_t used = 0;
    for (char *const *text = texts; *text; text++) {
        size_t bytes = strlen(*text) + 1;
        if (data)
            memcpy(data + used, *text, bytes);
        used += bytes;
    }
    return used;
}

/* Returns the message that describes a worker to the parent: the number of bytes that follow, the
 * number of words, the words, and the variables. The caller frees the message. NULL: no memory. */
static char *start_pack(char *const *words, char *const *environment, size_t *ret_bytes)
{
    size_t texts = start_pack_texts(words, NULL),
           bytes = texts + start_pack_texts(environment, NULL);
    uint32_t numbers[2] = {(uint32_t)(bytes + sizeof numbers[1]), 0};
    char *data = malloc(sizeof numbers + bytes);
    while (words[numbers[1]])
        numbers[1]++;
    if (!data)
        return NULL;
    memcpy(data, numbers, sizeof numbers);
    start_pack_texts(words, data + sizeof numbers);
    start_pack_texts(environment, data + sizeof numbers + texts);
    *ret_bytes = sizeof numbers + bytes;
    return data;
}

/* Sends to the parent the socket and the log of a new worker. */
static int start_send_descriptors(int start_fd, int log_fd)
{
    int fds[2] = {start_fd, log_fd};
    char kind = 'W';
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof fds)];
    } control = {0};
    struct iovec part = {.iov_base = &kind, .iov_len = 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control.bytes};
    control.header = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fds)};
    memcpy(CMSG_DATA(&control.header), fds, sizeof fds);
    return sendmsg(parent.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1 ? 0 : -errno;
}

static int start_send(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t sent = send(fd, data, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            return errno == EAGAIN ? -ETIMEDOUT : -errno;
        data += sent > 0 ? sent : 0;
        bytes -= sent > 0 ? (size_t)sent : 0;
    }
    return 0;
}

/* Returns the process number of the new worker, or a negative errno. The worker waits for
 * start_release(). */
static int start_await(int fd)
{
    int32_t pid = 0;
    ssize_t got;
    while ((got = recv(fd, &pid, sizeof pid, MSG_WAITALL)) < 0 && errno == EINTR)
        ;
    if (got < 0)
        return errno == EAGAIN ? -ETIMEDOUT : -errno;
    return got == sizeof pid && pid > 0 ? pid : -EPIPE;
}

/* Sends the byte that lets the worker begin. A worker whose socket is closed without this byte ends
 * by itself. */
static int start_release(int fd, pid_t pid, struct pool_process *ret_process)
{
    ret_process->pidfd = pidfd_open(pid, 0);
    ret_process->cookie.pid = pid;
    if (ret_process->pidfd < 0)
        return -errno;
    int error = start_send(fd, "", 1);
    if (error < 0)
        process_close(ret_process);
    return error;
}

/* Creates two connected sockets. Sending and receiving fail after FORK_S. Returns 0 or a negative
 * errno. */
static int start_sockets(int fds[2])
{
    const struct timeval limit = {.tv_sec = FORK_S};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
        return -errno;
    setsockopt(fds[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return 0;
}

static int fork_worker(const struct process_spec *spec, char **environment,
                       struct pool_process *ret_process)
{
    int fds[2];
    size_t bytes;
    _cleanup_free_ char *message = start_pack(spec->program, environment, &bytes);
    int error = message ? start_sockets(fds) : -ENOMEM;
    if (error < 0)
        return error;
    _cleanup_fd_ int ours = fds[0];
    error = start_send_descriptors(fds[1], spec->log_fd);
    close(fds[1]);
    if (error == 0)
        error = start_send(ours, message, bytes);
    int pid = error < 0 ? error : start_await(ours);
    return pid < 0 ? pid : start_release(ours, pid, ret_process);
}

/* Returns whether the parent has ended. The kernel closes the socket of a killed process shortly
 * before the pidfd shows the end. */
static bool parent_has_ended(void)
{
    struct pollfd end = {.fd = parent.process.pidfd, .events = POLLIN};
    return poll(&end, 1, END_MS) == 1;
}

/* Called after a fork has failed. The caller then starts the worker directly. A forked process
 * without the byte of start_release() ends by itself. */
static void fork_failed(int error)
{
    if (parent_has_ended())
        parent_lost("the process that forks workers has ended");
    else if (error == -ETIMEDOUT)
        parent_lost("no worker was forked within 10 s");
}

int preload_start_process(const struct process_spec *spec, const struct cookie *cookie,
                          struct pool_process *ret_process, bool *ret_is_final, struct err *err)
{
    char text[COOKIE_BYTES];
    struct pool_process started = {.is_own = true, .cookie = *cookie};
    *ret_is_final = false;
    if (parent.fd < 0)
        return process_start(spec, cookie, ret_process, ret_is_final, err);
    cookie_write(cookie, spec->job, text);
    _cleanup_free_ char **environment = process_environment(text, spec->variables);
    int error = environment ? fork_worker(spec, environment, &started) : -ENOMEM;
    if (error == 0) {
        *ret_process = started;
        return 0;
    }
    fork_failed(error);
    return process_start(spec, cookie, ret_process, ret_is_final, err);
}
