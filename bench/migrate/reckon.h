/* What the windows of one cell of `migrate` come to. */
#ifndef GRADPOOL_BENCH_MIGRATE_RECKON_H
#define GRADPOOL_BENCH_MIGRATE_RECKON_H

#include "bench/migrate/crowd.h"
#include "bench/migrate/migrate.h"

#define RECKON_WARM 6 /* iterations that are not looked at */
#define RECKON_WINDOWS_MAX 512

/* Iterations in which something was ordered. */
struct migrate_window {
    uint32_t first, last;
    bool migrates; /* else the order changed nothing */
    bool stands;   /* all workers stood still for it, in iteration `stood_in` */
    uint32_t stood_in;
    double answer_ms; /* of a migration for which nobody did: from order to answer */
};

/* Fractions and times, of at most RECKON_WINDOWS_MAX windows; the workers have ended. */
void reckon(const struct crowd *c, const struct migrate_window *windows, size_t count,
            struct migrate_row *row);

#endif
