/* Timelines on a lane: the lane writes committed rounds of a job's pieces to a ring that another
 * thread reads. RULES.md: A48. */
#ifndef GRADPOOL_LANE_ROUND_TRACING_H
#define GRADPOOL_LANE_ROUND_TRACING_H

#include "svc/base/list.h"
#include "svc/wire/trace_ring.h"

struct lane;
struct lane_job;
struct piece;

struct tracing {
    struct list link; /* node in lane.tracings */
    uint32_t job;
    struct trace_ring *ring;
};
/* Begins the recording of a job that is or will be on the lane. The caller lends `t` and its ring
 * until tracing_end(). A job has at most one recording. */
void tracing_begin(struct lane *lane, struct tracing *t);
void tracing_end(struct lane *lane, struct tracing *t);

/* ---- for the lane's own files ---- */

struct traced {
    uint64_t at_ns[TRACE_STEPS]; /* times of the steps */
    uint16_t last;               /* rank that announced the round last */
};
/* Connects a job that is new on its lane with its recording, if one has begun. */
void tracing_find(struct lane_job *job);
/* Writes the open round to the ring. The caller commits the round. */
void tracing_note(struct piece *p);

#endif
