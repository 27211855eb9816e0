/* One emulated worker: joins, pushes seeded gradients, checks every element of every result. */
#ifndef GRADPOOL_BENCH_PUSH_PUSH_H
#define GRADPOOL_BENCH_PUSH_PUSH_H

#include <stdbool.h>
#include <stdint.h>

struct push_options {
    const char *endpoint, *transport, *job;
    uint32_t rank, workers;
    uint32_t tensors;  /* pushed in every round */
    uint64_t elements; /* elements of each tensor */
    uint32_t rounds;
    uint32_t group;      /* tensors of a request; 0: one request has all */
    uint32_t compute_ms; /* sleep between rounds, instead of computing */
    uint32_t slow_rank;  /* this rank sleeps ten times as long; UINT32_MAX: no rank */
    uint64_t seed;
    uint32_t timeout_ms;
    bool is_mean, is_foreign;      /* foreign: memory that gp_alloc() did not make */
    bool is_in_place, is_shuffled; /* every rank pushes the tensors in an order of its own */
    bool skips_check;
    bool is_verbose; /* prints a line for each round, for tests that wait for one */
    bool is_json;
};

/* Runs one worker and prints a line of measurements; for a run without rounds only the reason, on
 * standard error. Returns 1 if the worker failed or elements were wrong. */
int push_report(const struct push_options *options);

/* Forks options->workers workers and prints one line of totals; 1 if any failed or was wrong. */
int local_run(const struct push_options *options);

#endif
