/* Jobs that have ended in the last hours, with the figures that were known of them last: in memory
 * that does not grow, as history.h. */
#ifndef GRADPOOL_OPS_SNAPSHOT_ENDED_H
#define GRADPOOL_OPS_SNAPSHOT_ENDED_H

#include "svc/ops/snapshot/figures.h"

#define ENDED_JOBS_MAX 100
#define ENDED_KEPT_S (6 * 3600.0)
#define ENDED_NAME_BYTES 128

/* Stays where it is: `view` points into it. */
struct ended_job {
    struct view_job view; /* without lanes, ranks and limits; rates and shares NAN */
    char tenant[ENDED_NAME_BYTES], job[ENDED_NAME_BYTES], state[32];
    double at_s; /* when it was missed, on the clock of uptime_ns */
};

struct ended {
    struct ended_job jobs[ENDED_JOBS_MAX];
    uint64_t count; /* ever; all zero is an empty one */
};

/* Takes what `before` (NULL: nothing) has and `now` has not. */
void ended_look(struct ended *e, const struct snapshot *before, const struct snapshot *now);
/* The index-th, the newest first; NULL: no more are kept. */
const struct ended_job *ended_at(const struct ended *e, size_t index, double now_s);
/* Whether any that is kept has it. */
bool ended_knows(const struct ended *e, const struct figure *figure, double now_s);

#endif
