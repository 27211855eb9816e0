/* Records rounds for timelines, in rings that belong to the readers. Recording allocates nothing
 * and takes no lock; for a job that is not recorded, only a pointer is checked. RULES.md: A48. */
#include "svc/lane/round/tracing.h"

#include "svc/lane/job/table.h"

#include <string.h>

void tracing_begin(struct lane *lane, struct tracing *t)
{
    struct lane_job *job = job_find(lane, t->job);
    list_append(&lane->tracings, &t->link);
    if (job)
        job->trace = t->ring;
}

void tracing_end(struct lane *lane, struct tracing *t)
{
    list_remove(&t->link);
    list_for_each_entry (struct lane_job, job, &lane->jobs, link) {
        /* the loop checks all jobs, because a dropped job with the same number may still exist */
        if (job->trace == t->ring)
            job->trace = NULL;
    }
}

void tracing_find(struct lane_job *job)
{
    list_for_each_entry (const struct tracing, t, &job->lane->tracings, link)
        if (t->job == job->id)
            job->trace = t->ring;
}

void tracing_note(struct piece *p)
{
    struct trace_ring *ring = p->job->trace;
    if (!ring || p->is_copy || !p->operation)
        return;
    struct trace_round round = {.round = p->round,
                                .bytes = piece_bytes(p, p->elements),
                                .thing = p->id,
                                .last = p->traced.last,
                                .operation = p->operation->code};
    trace_step(ring, p->traced.at_ns, TRACE_WRITTEN);
    p->traced.at_ns[TRACE_WRITTEN + 1] = p->traced.at_ns[TRACE_WRITTEN];
    memcpy(round.at_ns, p->traced.at_ns, sizeof round.at_ns);
    trace_ring_put(ring, &round);
}
