/* One row of `fences`: a victim job beside one load, over one transport. Turns with the load
 * alternate with turns with the load's control. */
#ifndef GRADPOOL_BENCH_FENCES_FENCES_H
#define GRADPOOL_BENCH_FENCES_FENCES_H

#include "bench/fences/load.h"
#include "bench/fences/victim.h"
#include "bench/fences/visits.h"

#include <stdbool.h>

#define RUNS_MAX 64 /* maximum number of runs; equal to STATISTICS_TURNS_MAX */
#define P99_BAR 3.0
#define P999_BAR 10.0
#define VISIT_BAR_S 1.0

struct fences_row {
    const struct load *load;
    const char *transport;
    uint32_t runs;
    double control_us[RUNS_MAX][FIGURES], beside_us[RUNS_MAX][FIGURES];
    uint64_t done; /* number of requests, records and connections of the load in all turns */
    uint64_t wrong;
    uint32_t visits; /* number of visits of each kind during the last turn; 0: none */
    struct visited visited;
};

/* Returns the median over the runs of a ratio: the figure measured beside the load, divided by the
 * figure measured beside the control. */
double fences_ratio(const struct fences_row *row, enum figure figure);

/* report.c: prints tables, or lines of JSON. */
void fences_print_begin(bool is_json);
void fences_print_row(const struct fences_row *row, bool is_json);
void fences_print_visits(const struct visited *alone, const struct fences_row *rows, size_t count,
                         bool is_json);
/* Prints the number of bars (limits) that are met, and the names of all other bars. Returns whether
 * all bars are met. */
bool fences_print_end(const struct fences_row *rows, size_t count, bool is_json);

#endif
