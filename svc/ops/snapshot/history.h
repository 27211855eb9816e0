/* Cores over the time since start, in memory that does not grow: when it is full, two neighbours
 * become one and samples come half as often; and the jobs that have ended meanwhile. */
#ifndef GRADPOOL_OPS_SNAPSHOT_HISTORY_H
#define GRADPOOL_OPS_SNAPSHOT_HISTORY_H

#include "svc/ops/snapshot/ended.h"

#define HISTORY_SAMPLES_MAX 360 /* even */

struct history {
    struct view_moment samples[HISTORY_SAMPLES_MAX];
    size_t count;
    uint32_t stride;            /* snapshots a sample; 0: none came yet */
    struct view_moment pending; /* sums of those that do not make a sample yet */
    uint32_t pending_count, pending_used_count;
    struct view_moment last; /* the newest snapshot */
    bool has_last;
    struct history_sum {          /* core-seconds since the first */
        double elapsed_s, used_s; /* used_s: of these, with a known use */
        struct view_cores cores;
    } sum;
    struct ended ended;
};

/* All zero is an empty one. */
void history_add(struct history *h, double at_s, const struct view_cores *cores);

/* Over all the time since it began, each snapshot for as long as it stood; `ret_cores->used` NAN:
 * not known. false: nothing came yet. */
bool history_mean(const struct history *h, struct view_cores *ret_cores);

#endif
