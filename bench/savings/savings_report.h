/* A run of `savings` as people and programs read it: a line or row as each turn ends, then the
 * jobs, the cores, and the last line. */
#ifndef GRADPOOL_BENCH_SAVINGS_SAVINGS_REPORT_H
#define GRADPOOL_BENCH_SAVINGS_SAVINGS_REPORT_H

#include "bench/savings/savings.h"

void report_plan(const struct savings *s);
void report_turn(const struct savings *s, enum savings_setting setting, uint32_t alternation,
                 const struct turn *turn);
/* What the last line says, and what it follows from. */
struct savings_sums {
    double saved[3]; /* against servers of 1, 2, 4 cores */
    double loss_mean, loss_p95, loss_worst, loss_worst_alone, offered, busiest;
    double losses[PLAN_JOBS_MAX]; /* of each job */
    double predicted_near; /* part of the told jobs that were told to 2 points; NAN: none was */
    double periods_ns[PLAN_JOBS_MAX][SAVINGS_SETTINGS];
};
void report_end(struct savings *s, struct savings_sums *ret_sums); /* sorts the series */

/* The same as one page, with a chart. Negative errno, with a text on standard error. */
int savings_page(const struct savings *s, const struct savings_sums *sums, const char *path);

#endif
