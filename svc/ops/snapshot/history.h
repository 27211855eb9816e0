/* Cores over the time since the start, in bounded memory: when the ring is full, neighbours are
 * merged in pairs and samples are taken half as often. Includes the ring of ended jobs. */
#ifndef GRADPOOL_OPS_SNAPSHOT_HISTORY_H
#define GRADPOOL_OPS_SNAPSHOT_HISTORY_H

#include "svc/ops/snapshot/ended.h"

#define HISTORY_SAMPLES_MAX 360 /* even */

struct history {
    struct view_moment samples[HISTORY_SAMPLES_MAX];
    size_t count;
    uint32_t stride;            /* snapshots in a sample; 0: no snapshot so far */
    struct view_moment pending; /* sums of the snapshots that are not a sample yet */
    uint32_t pending_count, pending_used_count;
    struct view_moment last; /* the newest snapshot */
    bool has_last;
    struct history_sum {          /* core-seconds since the first snapshot */
        double elapsed_s, used_s; /* elapsed time, and the part of it with a known use */
        struct view_cores cores;
    } sum;
    struct ended ended;
};

/* Adds a snapshot; a zeroed struct is an empty history. */
void history_add(struct history *h, double at_s, const struct view_cores *cores);

/* Means over the whole time, each snapshot weighted by its duration; `ret_cores->used` NAN:
 * unknown. False: no snapshot so far. */
bool history_mean(const struct history *h, struct view_cores *ret_cores);

#endif
