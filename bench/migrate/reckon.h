/* Computes the results of one cell of `migrate` from its windows. */
#ifndef GRADPOOL_BENCH_MIGRATE_RECKON_H
#define GRADPOOL_BENCH_MIGRATE_RECKON_H

#include "bench/migrate/crowd.h"
#include "bench/migrate/migrate.h"

#define RECKON_WARM 6 /* number of first iterations that do not count */
#define RECKON_WINDOWS_MAX 512

/* A window: the iterations from an order until shortly after its end. */
struct migrate_window {
    uint32_t first, last;
    bool migrates; /* true: the order moves tasks; false: the order has no effect */
    bool stands;   /* whether all workers stopped for the migration, in iteration `stood_in` */
    uint32_t stood_in;
    double answer_ms; /* time from order to answer, for live migrations */
};

/* Computes fractions and times over at most RECKON_WINDOWS_MAX windows, after the end of the
 * workers. */
void reckon(const struct crowd *c, const struct migrate_window *windows, size_t count,
            struct migrate_row *row);

#endif
