/* Processes of the bench and their children: cores, CPU time, memory. */
#ifndef GRADPOOL_BENCH_HOST_H
#define GRADPOOL_BENCH_HOST_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Returns the index-th core that this process may use, starting over after the last. In every
 * compared system a server is on core 0 and worker r on core r + 1. */
int process_core(uint32_t index);
/* Binds the calling process to a core. Threads created later inherit the core. Errors are
 * ignored. */
void process_bind(uint32_t index);

/* Like fork(); the child gets `signal` when this process dies. */
pid_t process_fork(int signal);
/* Like posix_spawnp(), with standard error and output into `log_path` unless NULL. Returns a
 * negative errno. */
pid_t process_spawn(char *const *argv, char *const *environment, const char *log_path);
/* Like process_spawn(), with one file for output and one for errors. */
pid_t process_spawn_apart(char *const *argv, char *const *environment, const char *output_path,
                          const char *error_path);
/* Waits until the deadline, then kills. Returns the exit code, or 128 + signal. */
int process_reap(pid_t pid, uint64_t deadline_ns);

/* CPU time of all threads so far; exact, not in ticks. 0 when there is no such process. */
uint64_t process_cpu_ns(pid_t pid);
/* Resident memory of the process; 0 for an unknown pid. */
uint64_t process_resident_bytes(pid_t pid);
/* Writes up to `most` children of `parent`, returns their number. */
size_t process_children(pid_t parent, pid_t *ret_pids, size_t most);

/* Finds `name` beside this program, or one folder above. -ENOENT: there is none. */
int process_find_beside(const char *name, char *ret_path, size_t path_bytes);

#endif
