/* One worker of an emulated job. In each step the worker sleeps for the computing time, pushes each
 * tensor of a real model when its gradient is ready, and waits for all results. */
#ifndef GRADPOOL_BENCH_SAVINGS_EMULATED_H
#define GRADPOOL_BENCH_SAVINGS_EMULATED_H

#include "bench/savings/plan.h"

struct emulated {
    const struct plan *plan;
    const struct plan_job *job;
    const char *endpoint, *transport;
    uint32_t rank, rounds;
};

struct emulated_result {
    uint64_t timed_rounds, timed_ns;
    uint64_t checked_rounds, wrong; /* wrong: number of elements */
};

/* Runs the worker. Returns 0, or the negative errno of the first failed call, with a text on
 * standard error. */
int emulated_run(const struct emulated *worker, struct emulated_result *ret_result);

#endif
