/* Time of a decision, by the real clock. */
#ifndef GRADPOOL_BENCH_BACKUP_DECISIONS_H
#define GRADPOOL_BENCH_BACKUP_DECISIONS_H

#include <stdint.h>

struct decisions {
    uint64_t count;
    double mean_ns, p99_ns;
};

/* Times the decisions of `auto` in rounds of that many workers, whose durations have a long tail;
 * up to `gradients` of a rank. -ENOMEM. */
int decisions_time(uint32_t workers, uint32_t gradients, struct decisions *ret_decisions);

#endif
