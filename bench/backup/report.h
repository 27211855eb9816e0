/* Prints a study as text and JSON. */
#ifndef GRADPOOL_BENCH_BACKUP_REPORT_H
#define GRADPOOL_BENCH_BACKUP_REPORT_H

#include "bench/backup/decisions.h"
#include "bench/backup/study.h"

/* One JSON line for each row, rule and seed. */
void report_rows(const struct study *study);
/* The table of ratios, for all targets or, with `is_deepest`, for the last one. */
void report_table(const struct study *study, bool is_deepest);
/* The figures that have a bar, as text or as one JSON line. `decisions` NULL: not timed. */
void report_bars(const struct study *study, bool is_fast_rate, const struct decisions *decisions,
                 bool is_json);
/* Runs the checks of the grid. Checks on digits need `are_digits_read`. Returns the number of runs
 * of a static k that differ; rules that decide are printed only. -errno. */
int report_checks(const struct study *study, bool are_digits_read);

#endif
