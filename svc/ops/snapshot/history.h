/* Cores over the time since the start, in bounded memory. When the ring of samples is full,
 * adjacent samples are merged, and new samples are taken half as often. The struct also contains
 * the ring of ended jobs. */
#ifndef GRADPOOL_OPS_SNAPSHOT_HISTORY_H
#define GRADPOOL_OPS_SNAPSHOT_HISTORY_H

#include "svc/ops/snapshot/ended.h"

#define HISTORY_SAMPLES_MAX 360 /* must be even */

struct history {
    struct view_moment samples[HISTORY_SAMPLES_MAX];
    size_t count;
    uint32_t stride;            /* number of snapshots in a sample; 0: no snapshot yet */
    struct view_moment pending; /* sums of the snapshots for the next sample */
    uint32_t pending_count, pending_used_count;
    struct view_moment last; /* newest snapshot */
    bool has_last;
    struct history_sum {          /* sums of core-seconds since the first snapshot */
        double elapsed_s, used_s; /* elapsed time, and the part of it with a known use */
        struct view_cores cores;
    } sum;
    struct ended ended;
};

/* Adds a snapshot. A zeroed struct is an empty history. */
void history_add(struct history *h, double at_s, const struct view_cores *cores);

/* Computes means over the whole time, weighted by the duration of each snapshot. `ret_cores->used`
 * is NAN if it is unknown. Returns false if there is no snapshot yet. */
bool history_mean(const struct history *h, struct view_cores *ret_cores);

#endif
