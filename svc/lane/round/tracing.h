/* A timeline's recording on a lane: rounds of a job's pieces go to a ring as they are committed,
 * whoever made it reads it from another thread. README: A48. */
#ifndef GRADPOOL_LANE_ROUND_TRACING_H
#define GRADPOOL_LANE_ROUND_TRACING_H

#include "svc/base/list.h"
#include "svc/wire/trace_ring.h"

struct lane;
struct lane_job;
struct piece;

struct tracing {
    struct list link; /* in lane.tracings */
    uint32_t job;
    struct trace_ring *ring;
};
/* The job is recorded from now on, also when it comes to the lane later; `t` is lent until
 * tracing_end(). One at a time of each job. */
void tracing_begin(struct lane *lane, struct tracing *t);
void tracing_end(struct lane *lane, struct tracing *t);

/* ---- for the files of this folder ---- */

struct traced {
    uint64_t at_ns[TRACE_STEPS];
    uint16_t last; /* who was the last to announce the round */
};
/* The job is new on its lane. */
void tracing_find(struct lane_job *job);
/* Its round is committed. */
void tracing_note(struct piece *p);

#endif
