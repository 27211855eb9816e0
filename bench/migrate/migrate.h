/* `gradpool-bench migrate`: pauses of a job during migrations of its tasks, compared with a stop of
 * all workers and with a restart on another lane. */
#ifndef GRADPOOL_BENCH_MIGRATE_H
#define GRADPOOL_BENCH_MIGRATE_H

#include "bench/lib/own_service.h"
#include "client/gradpool.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum migrate_mode { MIGRATE_LIVE, MIGRATE_STOP, MIGRATE_RESTART, MIGRATE_MODES };

const char *migrate_mode_name(enum migrate_mode mode);

/* The job's load beside its state, calibrated for the length of iterations. */
struct migrate_load {
    uint64_t elements, compute_ns; /* elements 0: not calibrated yet */
};

/* One job of two workers that migrates repeatedly. */
struct migrate_cell {
    enum migrate_mode mode;
    const char *transport;
    uint64_t state_bytes;
    enum gp_durability durability; /* place of the copies */
    uint64_t seed;
    uint32_t migrations; /* requested number of migrations */
    /* Load for this state and transport, calibrated by the first cell that uses it. */
    struct migrate_load *load;
};

struct migrate_row {
    double iteration_ms, aggregation_fraction; /* medians over iterations without a migration */
    double visible_pause_fraction, control_fraction;
    /* Medians over all migrations. migration_ms of a live migration: time from order to answer; in
     * the other modes: time from the stop of the first worker until the last worker trains again.
     * hidden_ms: part of migration_ms that lengthens no iteration; 0 in the other modes. */
    double migration_ms, hidden_ms;
    uint32_t migrations;
    uint64_t failed_rounds, wrong;
};

/* Measures one cell. The service has two aggregators with one lane each. Returns a negative errno,
 * with a text on standard error. */
int migrate_run(const struct service *service, const struct migrate_cell *cell,
                struct migrate_row *ret_row);

#endif
