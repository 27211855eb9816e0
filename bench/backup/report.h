/* Prints a study as text and JSON. */
#ifndef GRADPOOL_BENCH_BACKUP_REPORT_H
#define GRADPOOL_BENCH_BACKUP_REPORT_H

#include "bench/backup/decisions.h"
#include "bench/backup/study.h"

/* Prints one JSON line for each row, rule and seed. */
void report_rows(const struct study *study);
/* Prints the table of ratios: for all targets, or for the last target only if `is_deepest`. */
void report_table(const struct study *study, bool is_deepest);
struct report_kind {
    bool is_fast_rate; /* whether the study uses the grid with rate 2 */
    /* whether the study is the whole grid with digits from a file, so that figures are compared
     * with bars */
    bool is_whole;
    bool is_json;
};

/* Prints the figures and whether they meet their bars, as text or as one JSON line. decisions[0]
 * has the decision times with one gradient a rank, decisions[1] with several. */
void report_bars(const struct study *study, const struct report_kind *kind,
                 const struct decisions decisions[2]);
/* Returns whether a run has the result of a check, with the precision of the check. */
bool report_equals(const struct grid_check *check, const struct virtual_result *result);
/* Runs the checks of the grid. Checks on digits need `are_digits_read`. Returns the number of runs
 * with a static k whose result differs from the check. Runs of other rules are printed but not
 * counted. A negative result is -errno. */
int report_checks(const struct study *study, bool are_digits_read);

#endif
