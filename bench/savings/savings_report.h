/* A run of `savings` as people and programs read it: a line or row as each turn ends, then the
 * jobs, the cores, and the last line. */
#ifndef GRADPOOL_BENCH_SAVINGS_SAVINGS_REPORT_H
#define GRADPOOL_BENCH_SAVINGS_SAVINGS_REPORT_H

#include "bench/savings/savings.h"

void report_plan(const struct savings *s);
void report_turn(const struct savings *s, enum savings_setting setting, uint32_t alternation,
                 const struct turn *turn);
void report_end(struct savings *s); /* sorts the series */

#endif
