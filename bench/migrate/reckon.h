/* Computes the results of one cell of `migrate` from its windows. */
#ifndef GRADPOOL_BENCH_MIGRATE_RECKON_H
#define GRADPOOL_BENCH_MIGRATE_RECKON_H

#include "bench/migrate/crowd.h"
#include "bench/migrate/migrate.h"

#define RECKON_WARM 6 /* first iterations, which do not count */
#define RECKON_WINDOWS_MAX 512

/* Iterations in which something was ordered. */
struct migrate_window {
    uint32_t first, last;
    bool migrates; /* false: an order without effect */
    bool stands;   /* all workers stopped for the migration, in iteration `stood_in` */
    uint32_t stood_in;
    double answer_ms; /* live migrations: time from order to answer */
};

/* Fractions and times, of at most RECKON_WINDOWS_MAX windows; the workers have ended. */
void reckon(const struct crowd *c, const struct migrate_window *windows, size_t count,
            struct migrate_row *row);

#endif
