/* Measures the pauses of jobs during a drain of the aggregator with all their tasks. */
#ifndef GRADPOOL_BENCH_MIGRATE_DRAIN_H
#define GRADPOOL_BENCH_MIGRATE_DRAIN_H

#include "bench/lib/own_service.h"

/* Maximum size of a piece, and so of a task. */
#define DRAIN_PIECE_MAX "262144"

/* The longest iteration of the worst job in a window, divided by that job's median without a
 * drain. */
struct drain_longest {
    double median, worst; /* over all windows */
};

struct drain_row {
    uint32_t jobs, tasks, drains; /* number of tasks, as counted by the service */
    uint64_t state_bytes;         /* parameters and moments of all jobs, which each drain moves */
    double iteration_ms;          /* median of the jobs' medians, without a drain */
    double drain_ms;              /* median time from order to answer */
    struct drain_longest near, control; /* in windows with a drain, and in windows without */
    uint64_t failed_rounds, wrong;
};

/* Returns a negative errno, with a text on standard error. */
int drain_run(const struct service *service, const char *transport, uint32_t drains,
              struct drain_row *ret_row);

#endif
