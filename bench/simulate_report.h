/* A simulation as people and programs read it. */
#ifndef GRADPOOL_BENCH_SIMULATE_REPORT_H
#define GRADPOOL_BENCH_SIMULATE_REPORT_H

#include "bench/sim/simulate.h"

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
/* The last line. */
void simulate_report_json(const struct simulate_report *report, const struct simulated *result);

#endif
