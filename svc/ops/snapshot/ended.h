/* Jobs that ended in the last hours, with their last known values. Memory is bounded: a full ring
 * drops the oldest job. */
#ifndef GRADPOOL_OPS_SNAPSHOT_ENDED_H
#define GRADPOOL_OPS_SNAPSHOT_ENDED_H

#include "svc/ops/snapshot/figures.h"

#define ENDED_JOBS_MAX 100
#define ENDED_KEPT_S (6 * 3600.0)
#define ENDED_NAME_BYTES 128

/* A job that has ended. The struct must not be moved in memory, because `view` has pointers into
 * the struct. */
struct ended_job {
    /* last view of the job, without lanes, ranks and limits; rates and shares are NAN */
    struct view_job view;
    char tenant[ENDED_NAME_BYTES], job[ENDED_NAME_BYTES], state[32];
    double at_s; /* time of the first snapshot without the job, on the clock of uptime_ns */
};

struct ended {
    struct ended_job jobs[ENDED_JOBS_MAX];
    uint64_t count; /* number of all jobs ever added; a zeroed struct is an empty ring */
};

/* Adds the jobs of `before` (NULL: none) that are not in `now`. */
void ended_look(struct ended *e, const struct snapshot *before, const struct snapshot *now);
/* Returns the ended job with this index, or NULL; index 0 is the newest. */
const struct ended_job *ended_at(const struct ended *e, size_t index, double now_s);
/* Returns whether any stored job has the value. */
bool ended_knows(const struct ended *e, const struct figure *figure, double now_s);

#endif
