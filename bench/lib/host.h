/* Processes of the bench and their children: cores, CPU time, memory. */
#ifndef GRADPOOL_BENCH_HOST_H
#define GRADPOOL_BENCH_HOST_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Returns the index-th core that this process may use, counted cyclically. In every compared system
 * a server is on core 0 and worker r on core r + 1. */
int process_core(uint32_t index);
/* Binds the calling process to a core, which later threads inherit. Ignores errors. */
void process_bind(uint32_t index);

/* Calls fork(); the child gets `signal` when this process ends. */
pid_t process_fork(int signal);
/* Calls posix_spawnp() with standard output and error in the file `log_path`, unless `log_path` is
 * NULL. Returns a negative errno. */
pid_t process_spawn(char *const *argv, char *const *environment, const char *log_path);
/* Like process_spawn(), with one file for output and one for errors. */
pid_t process_spawn_apart(char *const *argv, char *const *environment, const char *output_path,
                          const char *error_path);
/* Waits until the deadline, then kills the process. Returns the exit code, or 128 + signal. */
int process_reap(pid_t pid, uint64_t deadline_ns);

/* Returns the exact CPU time of all threads; 0 if there is no such process. */
uint64_t process_cpu_ns(pid_t pid);
/* Returns the resident memory of a process; 0 for an unknown pid. */
uint64_t process_resident_bytes(pid_t pid);
/* Writes up to `most` children of `parent`; returns their number. */
size_t process_children(pid_t parent, pid_t *ret_pids, size_t most);

/* Finds `name` in the folder of this program, or in the folder above. -ENOENT. */
int process_find_beside(const char *name, char *ret_path, size_t path_bytes);

#endif
