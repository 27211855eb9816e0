/* Random durations of gradients, from a seed. */
#ifndef GRADPOOL_BENCH_BACKUP_TRAINING_DURATIONS_H
#define GRADPOOL_BENCH_BACKUP_TRAINING_DURATIONS_H

#include "bench/backup/grid/grid.h"

/* Coefficients of variation of the step times of one job's workers: percentiles over its
 * iterations. */
struct jitter_row {
    double p50, p90, p99, most;
};

#define JITTER_ROWS_MAX 256

struct jitter {
    struct jitter_row rows[JITTER_ROWS_MAX];
    size_t count;
};

/* Reads cov_p50, cov_p90, cov_p99 and cov_max of a CSV file with a header. Returns -errno, with a
 * text on standard error. */
int jitter_read(const char *path, struct jitter *ret_jitter);

struct durations {
    const struct grid_times *times;
    uint32_t workers;
    uint64_t seed, state;
    struct jitter_row row;
};

/* Starts the random stream of durations of all ranks. `jitter` has at least one row. The caller may
 * free `jitter` after the call. */
void durations_init(struct durations *durations, const struct grid_times *times, uint32_t workers,
                    uint64_t seed, const struct jitter *jitter);
/* Returns the duration of a gradient that the rank begins at time `t`. */
double durations_draw(struct durations *durations, uint32_t rank, double t);

#endif
