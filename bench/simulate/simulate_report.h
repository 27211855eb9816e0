/* Prints a simulation as text and JSON. */
#ifndef GRADPOOL_BENCH_SIMULATE_SIMULATE_REPORT_H
#define GRADPOOL_BENCH_SIMULATE_SIMULATE_REPORT_H

#include "bench/sim/simulate.h"

/* Returns the saved part of the cores, compared with one server of `cores` cores for each
 * worker. */
double simulate_saving(const struct simulated *result, double cores);
double simulate_moves_per_hour(const struct simulated *result);

struct simulate_report {
    const char *traces; /* path of the trace; NULL: random jobs */
    const struct workload *workload;
    const struct setting *setting;
    bool is_x_given; /* whether X was given as an option, and not measured */
    bool is_json;
};

/* Prints the assumptions; with is_json prints nothing. */
void simulate_report_start(const struct simulate_report *report);
void simulate_report_result(const struct simulate_report *report, const struct simulated *result);
/* Repeats the simulation with one changed assumption at a time, and prints a row for each. */
int simulate_report_rows(const struct simulate_report *report, const struct simulated *usual,
                         char *error);
/* Writes the result as one page with a chart. Returns a negative errno, with a text on standard
 * error. */
int simulate_page(const struct simulate_report *report, const struct simulated *result,
                  const struct trail *trail, const char *path);
/* Prints the summary line. */
void simulate_report_json(const struct simulate_report *report, const struct simulated *result);

#endif
