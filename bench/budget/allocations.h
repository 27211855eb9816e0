/* Counts allocations of processes. A library is preloaded into this program, and is inherited by
 * all processes that this program starts. */
#ifndef GRADPOOL_BENCH_ALLOCATIONS_H
#define GRADPOOL_BENCH_ALLOCATIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define ALLOCATIONS_VARIABLE "BENCH_ALLOCATIONS" /* path of the file with the counters */
/* maximum number of processes that this program starts */
#define ALLOCATIONS_ROWS 256
#define ALLOCATIONS_BYTES (ALLOCATIONS_ROWS * sizeof(struct allocations_row))

struct allocations_row {
    int32_t pid; /* process whose allocations the row counts; 0: the row is free */
    uint64_t count;
};

/* Returns whether allocations are counted. If the counting library is not loaded, starts this
 * program again with the library. Returns false if there is no library, as in builds with
 * sanitizers. `argv`: arguments of the command. */
bool allocations_counted(const char *command, int argc, char **argv);
/* Returns the number of allocations of all threads of the process so far. */
uint64_t allocations_of(pid_t pid);

#endif
