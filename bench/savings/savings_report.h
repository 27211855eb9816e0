/* Reports of a run of `savings` as text or JSON: a line after each turn, then jobs, cores, and the
 * summary line. */
#ifndef GRADPOOL_BENCH_SAVINGS_SAVINGS_REPORT_H
#define GRADPOOL_BENCH_SAVINGS_SAVINGS_REPORT_H

#include "bench/savings/savings.h"

void report_plan(const struct savings *s);
void report_turn(const struct savings *s, enum savings_setting setting, uint32_t alternation,
                 const struct turn *turn);
/* Figures of the summary line, and the figures from which they are computed. */
struct savings_sums {
    double saved[3]; /* saved part of the cores, compared with servers of 1, 2 and 4 cores */
    double loss_mean, loss_p95, loss_worst, loss_worst_alone, offered, busiest;
    double losses[PLAN_JOBS_MAX]; /* loss of each job */
    /* among the jobs with a prediction, the part whose prediction is within 2 points of the
     * measured loss; NAN: no job has a prediction */
    double predicted_near;
    double periods_ns[PLAN_JOBS_MAX][SAVINGS_SETTINGS];
};
void report_end(struct savings *s, struct savings_sums *ret_sums); /* sorts the series */

/* Writes the run as a page with a chart. Returns a negative errno, with a text on standard
 * error. */
int savings_page(const struct savings *s, const struct savings_sums *sums, const char *path);

#endif
