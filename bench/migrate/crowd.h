/* The workers of one emulated job, one process each, and their shared memory (boards). */
#ifndef GRADPOOL_BENCH_MIGRATE_CROWD_H
#define GRADPOOL_BENCH_MIGRATE_CROWD_H

#include "bench/migrate/trainee.h"

#include <sys/types.h>

#define CROWD_WORKERS_MAX 4

struct crowd {
    struct trainee plan; /* settings of rank 0 */
    uint32_t workers;
    pid_t pids[CROWD_WORKERS_MAX];
    int fds[CROWD_WORKERS_MAX];
    struct trainee_board *boards; /* one board for each worker, in memory shared with the workers */
};

/* Starts the workers. Returns 0, or a negative errno with a text on standard error. The caller
 * calls crowd_end() also after an error. */
int crowd_start(struct crowd *c, const struct trainee *plan);
/* Waits until rank 0 has ended this many iterations. -ECHILD: a worker has ended before. */
int crowd_await(struct crowd *c, uint32_t iterations);
uint32_t crowd_iterations(const struct crowd *c);
/* Sends an order for the end of an iteration. Returns when all workers pause (for TRAINEE_END: have
 * ended). */
int crowd_order(struct crowd *c, enum trainee_order order);
int crowd_go_on(struct crowd *c);
/* Returns the length of the iteration, from the first start to the last end of a worker. */
double crowd_lap_ms(const struct crowd *c, uint32_t iteration);
double crowd_aggregation_ms(const struct crowd *c, uint32_t iteration);
/* Returns the time from the first worker's end of aggregation until the last worker has obeyed
 * the order. */
double crowd_pause_ms(const struct crowd *c, uint32_t iteration);
/* Returns the CPU time of all workers for aggregation. */
double crowd_cpu_ms(const struct crowd *c, uint32_t iteration);
/* Returns the number of wrong results of all workers; -ENOMEM. */
int64_t crowd_count_wrong(const struct crowd *c);
/* Returns the number of workers that have failed. */
uint32_t crowd_failed(const struct crowd *c);
/* Kills remaining workers and frees all memory. */
void crowd_end(struct crowd *c);

#endif
