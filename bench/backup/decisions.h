/* Measures the time of a decision with the real clock. */
#ifndef GRADPOOL_BENCH_BACKUP_DECISIONS_H
#define GRADPOOL_BENCH_BACKUP_DECISIONS_H

#include <stdint.h>

struct decisions {
    uint64_t count;
    double mean_ns, p99_ns;
};

/* Measures the decisions of `auto`, in rounds of `workers` workers whose durations have a long
 * tail. A rank has up to `gradients` gradients in a round. -ENOMEM. */
int decisions_time(uint32_t workers, uint32_t gradients, struct decisions *ret_decisions);

#endif
