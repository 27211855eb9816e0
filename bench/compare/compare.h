/* Compares systems, whose turns alternate in one run. */
#ifndef GRADPOOL_BENCH_COMPARE_H
#define GRADPOOL_BENCH_COMPARE_H

#include "bench/compare/systems.h"

#define COMPARE_CHOICES_MAX 16

/* The tensors of a round, pushed as one group. */
struct compare_load {
    uint64_t tensor_bytes;
    uint32_t tensors;
};

struct compare_options {
    uint32_t workers[COMPARE_CHOICES_MAX];          /* numbers of workers; a 0 ends the list */
    struct compare_load loads[COMPARE_CHOICES_MAX]; /* an entry of 0 bytes ends the list */
    /* names of systems, separated by commas; NULL: all */
    const char *systems;
    uint32_t passes;  /* number of turns of each system in a cell */
    uint64_t cell_ns; /* total time of the rounds of a cell; each turn has at least two rounds */
    /* rank with ten times the pause before each round; UINT32_MAX: no rank */
    uint32_t slow_rank;
    bool is_json;
};

/* Measurements of one system with one number of workers and one load. */
struct cell {
    const struct system *system;
    uint32_t workers;
    struct compare_load load;
    uint64_t rounds, wrong;
    uint64_t worker_cpu_ns, server_cpu_ns, elapsed_ns;
    uint64_t *round_ns; /* times of rounds of all workers */
    size_t round_ns_count;
};

/* Returns the exit code. 1: a result was wrong, or a system that is installed has failed. */
int compare_run(const struct compare_options *options);

/* compare_report.c: prints `cells_count` cells of one load. The table has ratios to the lower bound
 * of the same cell (system "sockets"). Sorts the round times of the cells. */
void compare_report_start(const struct compare_options *options);
void compare_report(const struct compare_options *options, struct cell *cells, size_t cells_count);

#endif
