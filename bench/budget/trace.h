/* Counts the system calls of running processes, as strace -c does. The count is exact, but tracing
 * slows down the processes so much that other measurements must not run at the same time. */
#ifndef GRADPOOL_BENCH_TRACE_H
#define GRADPOOL_BENCH_TRACE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum trace_role { TRACE_SERVER, TRACE_WORKER, TRACE_ROLES };

struct trace_counts {
    uint64_t calls;
    /* number of calls of mmap, munmap, mremap, brk and madvise, which change the memory of a
     * process */
    uint64_t memory_calls;
};

struct trace;

/* Traces all threads of the processes; returns after the start. -EPERM: tracing is not allowed;
 * other negative errno. */
int trace_start(const pid_t *servers, size_t servers_count, const pid_t *workers,
                size_t workers_count, struct trace **ret_trace);
/* Ends the trace; `trace` may be NULL. `ret_counts` gets one entry for each role. */
void trace_stop(struct trace *trace, struct trace_counts *ret_counts);

/* Returns the number of voluntary sleeps of all threads of a process. This number equals the number
 * of their wake-ups. */
uint64_t trace_sleeps(pid_t pid);

#endif
