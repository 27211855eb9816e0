/* Processes of the bench and those below them: where they run, what CPU they have used. */
#ifndef GRADPOOL_BENCH_HOST_H
#define GRADPOOL_BENCH_HOST_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The index-th core this process may use, starting over after the last. A server sits on 0, worker
 * r on r + 1: in every system the same. */
int process_core(uint32_t index);
/* Binds the calling process; threads made later inherit it. Best effort. */
void process_bind(uint32_t index);

/* A child that gets `signal` when this process dies. As fork(). */
pid_t process_fork(int signal);
/* As posix_spawnp(), standard error (and output) into `log_path` unless NULL. Negative errno. */
pid_t process_spawn(char *const *argv, char *const *environment, const char *log_path);
/* The same with a file for each. */
pid_t process_spawn_apart(char *const *argv, char *const *environment, const char *output_path,
                          const char *error_path);
/* Waits until the deadline, then kills. Exit code, or 128 + signal. */
int process_reap(pid_t pid, uint64_t deadline_ns);

/* CPU time of all threads so far; exact, not in ticks. 0 when there is no such process. */
uint64_t process_cpu_ns(pid_t pid);
/* Memory that it holds now; 0 when there is no such process. */
uint64_t process_resident_bytes(pid_t pid);
/* Writes up to `most` children of `parent`, returns their number. */
size_t process_children(pid_t parent, pid_t *ret_pids, size_t most);

/* `name` beside this program, or one folder above it. -ENOENT. */
int process_find_beside(const char *name, char *ret_path, size_t path_bytes);

#endif
