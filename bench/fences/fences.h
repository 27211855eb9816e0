/* One row of `fences`: a victim beside one load, over one transport. Turns with the load alternate
 * with turns with its control. */
#ifndef GRADPOOL_BENCH_FENCES_FENCES_H
#define GRADPOOL_BENCH_FENCES_FENCES_H

#include "bench/fences/load.h"
#include "bench/fences/victim.h"
#include "bench/fences/visits.h"

#include <stdbool.h>

#define RUNS_MAX 64 /* STATISTICS_TURNS_MAX */
#define P99_BAR 3.0
#define P999_BAR 10.0
#define VISIT_BAR_S 1.0

struct fences_row {
    const struct load *load;
    const char *transport;
    uint32_t runs;
    double control_us[RUNS_MAX][FIGURES], beside_us[RUNS_MAX][FIGURES];
    uint64_t done; /* requests, records and connections of the load in all turns */
    uint64_t wrong;
    uint32_t visits; /* visits of each kind during the last turn; 0: none */
    struct visited visited;
};

/* Returns the median over the runs of (figure beside the load) / (figure beside the control). */
double fences_ratio(const struct fences_row *row, enum figure figure);

/* report.c: tables for people, lines of JSON for programs. */
void fences_print_begin(bool is_json);
void fences_print_row(const struct fences_row *row, bool is_json);
void fences_print_visits(const struct visited *alone, const struct fences_row *rows, size_t count,
                         bool is_json);
/* Prints how many limits are kept, and names the others. Returns whether all are kept. */
bool fences_print_end(const struct fences_row *rows, size_t count, bool is_json);

#endif
