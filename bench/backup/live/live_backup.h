/* The live bench starts a service, and runs crews on it over both transports, with several step
 * times and rules. */
#ifndef GRADPOOL_BENCH_BACKUP_LIVE_LIVE_BACKUP_H
#define GRADPOOL_BENCH_BACKUP_LIVE_LIVE_BACKUP_H

#include "bench/backup/training/durations.h"

struct live_backup {
    const struct grid *grid; /* step times and rules */
    const struct jitter *jitter;
    const char *transport; /* the only transport that is used; NULL: both transports */
    /* real duration of a unit of time, which is about the duration of one gradient */
    uint64_t unit_ns;
    bool is_quick, is_json;
};

/* Runs everything. Prints one row for each run, then the figures that have a bar. Returns the
 * number of runs in which workers had different parameters, or -errno, with a text on standard
 * error. */
int live_backup_run(const struct live_backup *live);

#endif
