/* What was done to whom, and when, so that of each failure it can be told whether it has a cause.
 * Judged by when something failed, not by when that was noticed. */
#ifndef GRADPOOL_BENCH_FAULTS_BLAME_H
#define GRADPOOL_BENCH_FAULTS_BLAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BLAME_HURTS 4
#define BLAME_ENDS 16

/* The last times that something was done to a worker that ends it. */
struct blame_hurts {
    uint64_t at_ns[BLAME_HURTS];
    uint32_t count;
};
void blame_hurt(struct blame_hurts *hurts, uint64_t at_ns);
/* Whether what failed then may be one of them: within 10 s, or the patience of the call that failed
 * if that is longer. */
bool blame_was_hurt(const struct blame_hurts *hurts, uint64_t failed_ns, uint64_t patience_ns);

/* The last ends of aggregators, which take parameters or copies of these along. */
struct blame_losses {
    struct blame_end {
        uint64_t from_ns, to_ns; /* it was between these */
        uint64_t still_ns;       /* that the service had stood still until then */
    } ends[BLAME_ENDS];
    size_t count;
    uint64_t still_ns;
};
void blame_ended(struct blame_losses *losses, uint64_t from_ns, uint64_t to_ns);
/* For so long no coordinator was there, or somebody was stopped: nobody began, or ended, another
 * copy. */
void blame_stood_still(struct blame_losses *losses, uint64_t ns);
/* Whether two of them, owner and keeper, ended so soon after each other that there was no time for
 * another copy, and not long before that failure. */
bool blame_is_bereft(const struct blame_losses *losses, uint64_t failed_ns);

#endif
