/* A lane that is slow without using its core: how slow stands in a file, which `stragglers` writes
 * and the lanes of its service map (slow_lanes.c). */
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

/* The numbers of a file, mapped for good. NULL: there is no such file, or it is too short. */
const struct slowing_numbers *slowing_map(const char *path);
/* The lane has summed so many bytes. */
void slowing_owe(struct slowing *s, uint64_t bytes);
/* A round of this task has begun. */
void slowing_owe_task(struct slowing *s, uint32_t task);
/* Sleeps for the debt, at most 100 ms of it, before the next chunk is begun. */
void slowing_pay(struct slowing *s);

#endif
