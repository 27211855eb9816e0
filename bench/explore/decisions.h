/* Measures the CPU time of one decision of the scheduler with many jobs. */
#ifndef GRADPOOL_BENCH_EXPLORE_DECISIONS_H
#define GRADPOOL_BENCH_EXPLORE_DECISIONS_H

#include <stdint.h>

struct decisions {
    uint32_t jobs, slots, count; /* count: number of measured decisions */
    double p50_us, p99_us, max_us;
};

/* Measures `count` decisions. Returns 0, -ENOMEM, or an error of the scheduler. */
int decisions_measure(uint32_t jobs, uint32_t slots, uint32_t count, uint64_t seed,
                      struct decisions *ret_decisions);

#endif
