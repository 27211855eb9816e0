/* Counts the system calls of running processes, like strace -c. The count is exact, and so
 * slow that nothing else should be measured at the same time. */
#ifndef GRADPOOL_BENCH_TRACE_H
#define GRADPOOL_BENCH_TRACE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum trace_role { TRACE_SERVER, TRACE_WORKER, TRACE_ROLES };

struct trace_counts {
    uint64_t calls;
    uint64_t memory_calls; /* mmap, munmap, mremap, brk, madvise: memory that grows or shrinks */
};

struct trace;

/* Traces all threads of the processes; returns once they are traced. Negative errno: -EPERM where
 * tracing is not allowed. */
int trace_start(const pid_t *servers, size_t servers_count, const pid_t *workers,
                size_t workers_count, struct trace **ret_trace);
/* Ends the tracing. `ret_counts`: one for each role. NULL is allowed. */
void trace_stop(struct trace *trace, struct trace_counts *ret_counts);

/* Returns the number of voluntary sleeps of the process's threads so far, which is the number of
 * their wake-ups. */
uint64_t trace_sleeps(pid_t pid);

#endif
