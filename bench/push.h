/* One emulated worker: joins, pushes seeded gradients, checks every element of every result. */
#ifndef GRADPOOL_BENCH_PUSH_H
#define GRADPOOL_BENCH_PUSH_H

#include <stdbool.h>
#include <stdint.h>

struct push_options {
    const char *endpoint, *transport, *job;
    uint32_t rank, workers;
    uint32_t tensors;  /* pushed in every round */
    uint64_t elements; /* of each */
    uint32_t rounds;
    uint32_t group;      /* tensors a request; 0: all in one */
    uint32_t compute_ms; /* slept between rounds, as if computing */
    uint32_t slow_rank;  /* sleeps ten times as long; UINT32_MAX: nobody */
    uint64_t seed;
    uint32_t timeout_ms;
    bool is_mean, is_foreign;      /* foreign: memory that gp_alloc() did not make */
    bool is_in_place, is_shuffled; /* every rank pushes the tensors in an order of its own */
    bool skips_check;
    bool is_verbose; /* a line a round, for tests that wait for one */
    bool is_json;
};

struct push_result {
    uint64_t rounds, wrong;
    double seconds, cpu_seconds;
    double round_us_p50, round_us_p99;
};

/* 0, or the negative errno of the first call that failed (its text is on standard error). */
int push_run(const struct push_options *options, struct push_result *ret_result);
void push_print(const struct push_options *options, const struct push_result *result);

/* Forks options->workers workers and prints one line of totals; 1 if any failed or was wrong. */
int local_run(const struct push_options *options);

#endif
