/* Adds values to the parts of a run. Owns the list of jobs. */
#include "bench/sim/trail.h"

#include <stdlib.h>

static double least(double a, double b) { return a < b ? a : b; }

void trail_add(struct trail *trail, uint64_t end_ns, uint64_t from_ns, uint64_t to_ns,
               const struct trail_part *cores)
{
    double part_ns = (double)end_ns / TRAIL_PARTS, at_ns = (double)from_ns;
    size_t part = end_ns ? (size_t)((double)from_ns / part_ns) : TRAIL_PARTS;

    for (; part < TRAIL_PARTS && at_ns < (double)to_ns; part++) {
        double until_ns = least((double)(part + 1) * part_ns, (double)to_ns);
        double share = (until_ns - at_ns) / part_ns;

        trail->parts[part].allocated += cores->allocated * share;
        trail->parts[part].fluid += cores->fluid * share;
        trail->parts[part].dedicated += cores->dedicated * share;
        at_ns = until_ns;
    }
}

void trail_count(struct trail *trail, uint64_t end_ns, uint64_t at_ns,
                 const struct trail_span *change)
{
    double part = end_ns ? (double)at_ns / (double)end_ns * TRAIL_SPANS : 0;
    struct trail_span *span = &trail->spans[part < TRAIL_SPANS ? (size_t)part : TRAIL_SPANS - 1];

    span->opened += change->opened;
    span->closed += change->closed;
    span->moves += change->moves;
}

void trail_fini(struct trail *trail)
{
    free(trail->jobs);
    *trail = (struct trail){0};
}
