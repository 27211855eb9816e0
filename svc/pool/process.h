/* Processes of workers: start, signals, and the end of all processes that a worker has started. A
 * signal goes to a pidfd, never to a process number, because the kernel may give the number of an
 * ended process to a new one. */
#ifndef GRADPOOL_POOL_PROCESS_H
#define GRADPOOL_POOL_PROCESS_H

#include "svc/base/err.h"
#include "svc/pool/cookie.h"

struct pool_process {
    int pidfd;   /* -1: no process */
    bool is_own; /* a child of this process: its exit code can be read */
    struct cookie cookie;
};

struct process_spec {
    char **program;         /* arguments for execvpe() */
    char *const *variables; /* "NAME=VALUE", added to the environment of this process; NULL ends */
    const char *job;
    int log_fd;
};

/* Starts a process with the cookie; cookie->pid is ignored. The process leads a session of its own,
 * and survives this process. `ret_is_final`: the program cannot be executed, so another try would
 * fail, too. */
int process_start(const struct process_spec *spec, const struct cookie *cookie,
                  struct pool_process *ret_process, bool *ret_is_final, struct err *err);
/* Returns this process's environment with the cookie and the variables in front; NULL: no memory.
 * The caller frees the list, but not its texts. */
char **process_environment(char *cookie, char *const *variables);
void process_signal(const struct pool_process *process, int signal);
void process_close(struct pool_process *process);
/* Ends all other processes that carry the cookie of `process` or are in its session. Called after
 * the worker has ended and before its status is read: until then the kernel gives its number to no
 * other process. Waits 5 s at most. Returns the number of processes that have not ended by then. */
uint32_t process_clear(const struct pool_process *process);

/* Calls `found` for each process with a cookie of this pool. `pidfd` is closed afterwards. */
typedef void (*process_found_fn)(void *context, const struct cookie *cookie, pid_t pid, int pidfd);
void processes_each(uint64_t pool, process_found_fn found, void *context);
/* Returns whether the process exists and carries a cookie. */
bool process_find_cookie(pid_t pid, struct cookie *ret_cookie);
/* Returns whether this process has children. */
bool processes_has_children(void);
/* Ends all children of this process. */
void processes_end_children(void);

#endif
