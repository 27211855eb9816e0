/* How much processes allocate: counted by a library that is preloaded into this program and thereby
 * into all that it starts. */
#ifndef GRADPOOL_BENCH_ALLOCATIONS_H
#define GRADPOOL_BENCH_ALLOCATIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define ALLOCATIONS_VARIABLE "BENCH_ALLOCATIONS" /* the path of the rows */
#define ALLOCATIONS_ROWS 256                     /* processes, over the life of this program */
#define ALLOCATIONS_BYTES (ALLOCATIONS_ROWS * sizeof(struct allocations_row))

struct allocations_row {
    int32_t pid; /* 0: free */
    uint64_t count;
};

/* Whether they are counted. Starts this program anew, with the library, unless it is in already;
 * false where there is none (sanitizers bring functions of their own). `argv`: of the command. */
bool allocations_counted(const char *command, int argc, char **argv);
/* By all threads of the process, so far. */
uint64_t allocations_of(pid_t pid);

#endif
