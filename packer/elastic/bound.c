/* Computes the promised waits (F7). Owns nothing. Must never use less than whole probes: the trials
 * of a burst probe at the same time, so that their slots come free together. */
#include "packer/elastic/bound.h"

static uint64_t bound_parts(uint64_t all, uint64_t part)
{
    return part ? (all + part - 1) / part : all;
}

/* Slots that trials in probing leave to the others. */
static uint32_t bound_running_slots(const struct bound_case *c)
{
    return c->slots - c->slots * 3 / 4;
}

/* Time in which all overdue rests have had their quantum. */
static uint64_t bound_overdue_ns(const struct bound_case *c)
{
    return (c->quantum_ns + c->leave_ns) * bound_parts(c->overdue, bound_running_slots(c));
}

/* A job cannot rest before its quantum, however early it reports. */
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
