/* A lane that is slow without using its core: a file, which `stragglers` writes and the lanes of
 * its service map (slow_lanes.c), sets the slow-down. */
#ifndef GRADPOOL_BENCH_STRAGGLERS_SLOWING_H
#define GRADPOOL_BENCH_STRAGGLERS_SLOWING_H

#include <stdint.h>

#define SLOWING_LANES 4
#define SLOWING_VARIABLE "BENCH_SLOW_LANES" /* names the file */

/* The file. Numbers may change at any time. */
struct slowing_numbers {
    uint32_t ns_per_kib[SLOWING_LANES]; /* summed by a lane */
    uint32_t task, task_ns; /* one task's number (0: none), and ns of each of its rounds */
};

/* One lane's. */
struct slowing {
    const struct slowing_numbers *numbers; /* lent; NULL: never slow */
    uint32_t lane;                         /* its place among those of its aggregator */
    int64_t debt_ns;
};

/* Maps the numbers of a file until the process ends. NULL: no such file, or the file is too
 * short. */
const struct slowing_numbers *slowing_map(const char *path);
/* Adds sleep for `bytes` that the lane has summed. */
void slowing_owe(struct slowing *s, uint64_t bytes);
/* Adds sleep for a round of this task. */
void slowing_owe_task(struct slowing *s, uint32_t task);
/* Sleeps the added time, at most 100 ms of it, before the next chunk begins. */
void slowing_pay(struct slowing *s);

#endif
