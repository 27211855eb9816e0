/* All runs of a grid, and the comparison of rules with the best static k. */
#ifndef GRADPOOL_BENCH_BACKUP_STUDY_H
#define GRADPOOL_BENCH_BACKUP_STUDY_H

#include "bench/backup/training/virtual.h"

/* A row: one problem, step time, kind of straggler and target, over all seeds. */
struct study_row {
    size_t problem, times, straggler, target;
};

struct study {
    const struct grid *grid;
    const struct digits *digits;
    const struct jitter *jitter;
    uint32_t absence;
    /* results of all runs; the index is computed from problem, times, straggler, rule and seed */
    struct virtual_result *results;
};

/* Ratios over rows and seeds. A ratio divides the time of a rule by the time of the row's best
 * static k. */
struct study_cell {
    size_t count;
    double mean; /* geometric mean of the ratios */
    double p90;
    size_t missed; /* number of targets that were not reached */
};

#define STUDY_ALL SIZE_MAX

/* Runs all rules on the whole grid. `grid`, `digits` and `jitter` must stay valid. Returns 0 or
 * -errno. */
int study_run(struct study *study);
void study_fini(struct study *study);

const struct virtual_result *study_result(const struct study *study, const struct study_row *row,
                                          size_t rule, size_t seed);
/* Returns the time at which the run reached the target; the grid's time_unreached if the run
 * missed the target. */
double study_time(const struct study *study, const struct study_row *row, size_t rule, size_t seed);
/* Returns the static rule with the smallest mean time. STUDY_ALL: the grid has no static rule, or
 * no static rule reaches the target. */
size_t study_best_static(const struct study *study, const struct study_row *row);
/* Calls `each` for every row. */
void study_each_row(const struct study *study,
                    void (*each)(void *data, const struct study_row *row), void *data);
/* Returns the ratios over the rows of one step time (or STUDY_ALL) and one target (or
 * STUDY_ALL). */
struct study_cell study_cell_of(const struct study *study, size_t times, size_t target,
                                size_t rule);
/* Returns the position of a rule, or STUDY_ALL. */
size_t study_find_rule(const struct study *study, const char *name);

#endif
