/* A lane that is slow without using its core. `stragglers` writes a file with the slow-down, and
 * the lanes of its service map the file (slow_lanes.c). */
#ifndef GRADPOOL_BENCH_STRAGGLERS_SLOWING_H
#define GRADPOOL_BENCH_STRAGGLERS_SLOWING_H

#include <stdint.h>

#define SLOWING_LANES 4
#define SLOWING_VARIABLE "BENCH_SLOW_LANES" /* environment variable with the name of the file */

/* Contents of the file. Numbers may change at any time. */
struct slowing_numbers {
    uint32_t ns_per_kib[SLOWING_LANES]; /* sleep for each KiB that a lane has summed */
    /* number of one slow task (0: none); sleep in ns for each of its rounds */
    uint32_t task, task_ns;
};

/* State of one lane. */
struct slowing {
    /* the caller owns the numbers; NULL: the lane is never slow */
    const struct slowing_numbers *numbers;
    uint32_t lane; /* position of the lane among the lanes of its aggregator */
    int64_t debt_ns;
};

/* Maps the numbers of a file until the process ends. NULL: no such file, or the file is too
 * short. */
const struct slowing_numbers *slowing_map(const char *path);
/* Adds sleep for `bytes` that the lane has summed. */
void slowing_owe(struct slowing *s, uint64_t bytes);
/* Adds sleep for a round of this task. */
void slowing_owe_task(struct slowing *s, uint32_t task);
/* Does the added sleep, at most 100 ms, before the next chunk begins. */
void slowing_pay(struct slowing *s);

#endif
