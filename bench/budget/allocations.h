/* Counts allocations of processes, with a library that is preloaded into this program and inherited
 * by every process that it starts. */
#ifndef GRADPOOL_BENCH_ALLOCATIONS_H
#define GRADPOOL_BENCH_ALLOCATIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define ALLOCATIONS_VARIABLE "BENCH_ALLOCATIONS" /* path of the file with the rows */
#define ALLOCATIONS_ROWS 256                     /* most processes in the life of this program */
#define ALLOCATIONS_BYTES (ALLOCATIONS_ROWS * sizeof(struct allocations_row))

struct allocations_row {
    int32_t pid; /* 0: free */
    uint64_t count;
};

/* Returns whether allocations are counted. Starts this program again with the library unless the
 * library is loaded. Returns false without the library (programs with sanitizers cannot use it).
 * `argv`: arguments of the command. */
bool allocations_counted(const char *command, int argc, char **argv);
/* Returns the number of allocations of all threads of the process so far. */
uint64_t allocations_of(pid_t pid);

#endif
