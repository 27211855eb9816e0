/* What jobs notice when the aggregator that has all their tasks is drained. */
#ifndef GRADPOOL_BENCH_MIGRATE_DRAIN_H
#define GRADPOOL_BENCH_MIGRATE_DRAIN_H

#include "bench/compare/own_service.h"

/* Of the service: tasks of so many bytes at most. */
#define DRAIN_PIECE_MAX "262144"

struct drain_row {
    uint32_t jobs, tasks, drains;
    double iteration_ms; /* median of the medians of the jobs, without draining */
    /* The worst job's longest iteration near a drain, over its median: median of all drains; and
     * the same where nothing is drained. */
    double worst_fraction, control_fraction;
    uint64_t failed_rounds, wrong;
};

/* Negative errno, with a text on standard error. */
int drain_run(const struct service *service, const char *transport, uint32_t drains,
              struct drain_row *ret_row);

#endif
