/* The parts of `gradpool-bench tables`, and the lines that they print. */
#ifndef GRADPOOL_BENCH_TABLES_TABLES_H
#define GRADPOOL_BENCH_TABLES_TABLES_H

#include "bench/lib/parts.h"
#include "bench/tables/crew.h"

struct tables {
    const char *bench; /* name of the command, for lines of JSON */
    struct service service;
    bool is_quick, is_json;
    uint64_t seed;
    uint64_t wrong; /* number of wrong rows and results in all parts */
};

enum tables_bar { TABLES_NO_BAR, TABLES_AT_MOST, TABLES_AT_LEAST };

struct tables_line {
    const char *name, *unit;
    double value;
    enum tables_bar kind;
    double bar;
    uint64_t wrong; /* number of wrong rows and results in the run with this value */
};
/* Prints the line. */
void tables_print(struct tables *t, const struct tables_line *line);

/* Starts a service, runs the chosen parts among `count` parts, and ends the service. Returns the
 * exit code of the command. */
int tables_measure(const char *bench, const struct parts_options *options,
                   int (*const *parts)(struct tables *t), size_t count);

/* Each part runs its jobs, prints its lines, and adds to t->wrong. Returns 0 or a negative errno,
 * with a text on standard error. */
int tables_apply(struct tables *t);    /* updates of a lane, compared with the row store alone */
int tables_exchange(struct tables *t); /* pulls and pushes of two workers, and their clocks */
int tables_memory(struct tables *t);   /* memory of a row beyond its values and moments */
int tables_latency(struct tables *t);  /* pulls while rows are made */
int tables_copies(struct tables *t);   /* copies on another aggregator, and a killed owner */
int tables_ahead(struct tables *t);    /* SSP and BSP with workers of changing speed */

#endif
