/* A simulation as people and programs read it. */
#ifndef GRADPOOL_BENCH_SIMULATE_SIMULATE_REPORT_H
#define GRADPOOL_BENCH_SIMULATE_SIMULATE_REPORT_H

#include "bench/sim/simulate.h"

/* Part of the cores of servers of so many cores, one a worker, that are not held. */
double simulate_saving(const struct simulated *result, double cores);
double simulate_moves_per_hour(const struct simulated *result);

struct simulate_report {
    const char *traces; /* NULL: drawn */
    const struct workload *workload;
    const struct setting *setting;
    bool is_x_given; /* not measured */
    bool is_json;
};

/* What is assumed; nothing with is_json. */
void simulate_report_start(const struct simulate_report *report);
void simulate_report_result(const struct simulate_report *report, const struct simulated *result);
/* Simulates again with one assumption changed at a time, a row each. */
int simulate_report_rows(const struct simulate_report *report, const struct simulated *usual,
                         char *error);
/* The same as one page, with a chart. Negative errno, with a text on standard error. */
int simulate_page(const struct simulate_report *report, const struct simulated *result,
                  const struct trail *trail, const char *path);
/* The last line. */
void simulate_report_json(const struct simulate_report *report, const struct simulated *result);

#endif
