/* Computes the longest waits that the scheduler promises (F7). A probe is the time from the start
 * of a trial to its first report. Always counts whole probes, because trials that start together
 * also report together, so their slots become free together. */
#include "packer/elastic/bound.h"

static uint64_t bound_parts(uint64_t all, uint64_t part)
{
    return part ? (all + part - 1) / part : all;
}

/* Returns the number of slots that jobs without a report never use (F3). */
static uint32_t bound_running_slots(const struct bound_case *c)
{
    return c->slots - c->slots * 3 / 4;
}

/* Returns an upper bound of the time in which every job that has rested too long gets slots and
 * runs for one quantum. */
static uint64_t bound_overdue_ns(const struct bound_case *c)
{
    return (c->quantum_ns + c->leave_ns) * bound_parts(c->overdue, bound_running_slots(c));
}

/* Returns the time of `probes` probes that follow each other. A job keeps its slots for at least
 * one quantum, even if the job reports earlier. */
static uint64_t bound_probes_ns(const struct bound_case *c, uint64_t probes)
{
    uint64_t probe_ns = c->probe_ns > c->quantum_ns ? c->probe_ns : c->quantum_ns;
    return probes * (probe_ns + c->leave_ns);
}

uint64_t bound_arrival_ns(const struct bound_case *c)
{
    uint32_t probing_slots = c->slots * 3 / 4 ? c->slots * 3 / 4 : 1;
    return c->quantum_ns + c->leave_ns + bound_overdue_ns(c) +
           bound_probes_ns(c, bound_parts(c->ahead, probing_slots) + c->wide);
}

uint64_t bound_rest_ns(const struct bound_case *c)
{
    return c->rest_max_ns + c->quantum_ns + c->leave_ns + bound_overdue_ns(c) +
           bound_probes_ns(c, c->wide);
}
