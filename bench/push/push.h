/* One emulated worker: joins, pushes gradients computed from a seed, and checks every element of
 * every result. */
#ifndef GRADPOOL_BENCH_PUSH_PUSH_H
#define GRADPOOL_BENCH_PUSH_PUSH_H

#include <stdbool.h>
#include <stdint.h>

struct push_options {
    const char *endpoint, *transport, *job;
    uint32_t rank, workers;
    uint32_t tensors;  /* number of tensors, all of which are pushed in every round */
    uint64_t elements; /* number of elements of each tensor */
    uint32_t rounds;
    uint32_t group;      /* number of tensors in a request; 0: all */
    uint32_t compute_ms; /* sleep between rounds, in place of computing */
    uint32_t slow_rank;  /* this rank sleeps ten times as long; UINT32_MAX: no rank */
    uint64_t seed;
    uint32_t timeout_ms;
    /* is_foreign: gradients are in memory that is not from gp_alloc() */
    bool is_mean, is_foreign;
    bool is_in_place, is_shuffled; /* is_shuffled: every rank pushes the tensors in another order */
    bool skips_check;
    bool is_verbose; /* whether to print a line for each round, for tests that wait for a round */
    bool is_json;
};

/* Runs one worker and prints a line of measurements. Without a completed round it prints only the
 * reason, on standard error. Returns 1 if the worker failed or elements were wrong. */
int push_report(const struct push_options *options);

/* Forks options->workers workers and prints one line of totals. Returns 1 if a worker failed or a
 * result was wrong. */
int local_run(const struct push_options *options);

#endif
