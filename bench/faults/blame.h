/* Stores times of strikes (faults that the bench injects) against workers, and of ends of
 * aggregators. Such a cause excuses a failure. The time of the failure is compared, not the time of
 * its detection. */
#ifndef GRADPOOL_BENCH_FAULTS_BLAME_H
#define GRADPOOL_BENCH_FAULTS_BLAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BLAME_HURTS 4
#define BLAME_ENDS 16

/* Times of the last strikes that may have ended a worker. */
struct blame_hurts {
    uint64_t at_ns[BLAME_HURTS];
    uint32_t count;
};
void blame_hurt(struct blame_hurts *hurts, uint64_t at_ns);
/* Returns whether a strike may have caused a failure at `failed_ns`. The failure must have come
 * within 10 s of the strike, or within `patience_ns`, the longest duration of the failed call. */
bool blame_was_hurt(const struct blame_hurts *hurts, uint64_t failed_ns, uint64_t patience_ns);

/* The last ends of aggregators. Parameters and copies on an aggregator are lost at its end. */
struct blame_losses {
    struct blame_end {
        uint64_t from_ns, to_ns; /* the aggregator ended between these two times */
        uint64_t still_ns;       /* total time without progress of the service, until this end */
    } ends[BLAME_ENDS];
    size_t count;
    uint64_t still_ns;
};
void blame_ended(struct blame_losses *losses, uint64_t from_ns, uint64_t to_ns);
/* Adds a time without progress: while the coordinator is absent or a process is stopped, no copy
 * can begin or complete. */
void blame_stood_still(struct blame_losses *losses, uint64_t ns);
/* Returns whether the failure may be a lost copy: two aggregators, owner and replica holder, ended
 * at most 15 s before `failed_ns`, and the second one ended before another copy was complete. */
bool blame_is_bereft(const struct blame_losses *losses, uint64_t failed_ns);

#endif
