/* Computes hold time, quantum and longest silence from the median of the last probe times (F5,
 * F7). */
#include "packer/elastic/internal.h"

#include <stdlib.h>
#include <string.h>

#define PACE_QUANTA 3 /* length of the hold time, in quanta */
/* a job that has sent no report for this multiple of the median probe time counts as running */
#define PACE_SILENCE 10

static int pace_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

void pace_add(struct pace *pace, uint64_t probe_ns)
{
    uint64_t sorted[PACE_PROBES];
    pace->probes_ns[pace->next] = probe_ns;
    pace->next = (pace->next + 1) % PACE_PROBES;
    pace->count += pace->count < PACE_PROBES;
    memcpy(sorted, pace->probes_ns, pace->count * sizeof *sorted);
    qsort(sorted, pace->count, sizeof *sorted, pace_compare);
    pace->median_ns = sorted[pace->count / 2];
}

uint64_t pace_hold_ns(const struct scheduler *s)
{
    uint64_t median_ns = s->pace->median_ns;
    if (s->options.hold_ns)
        return s->options.hold_ns;
    if (!s->pace->count)
        return SCHEDULER_HOLD_FIRST_NS;
    return median_ns < SCHEDULER_HOLD_MAX_NS ? median_ns : SCHEDULER_HOLD_MAX_NS;
}

uint64_t pace_held_until_ns(const struct scheduler *s, const struct roster_job *job)
{
    return job->changed_ns + pace_hold_ns(s);
}

uint64_t pace_quantum_ns(const struct scheduler *s)
{
    return s->options.quantum_ns ? s->options.quantum_ns : pace_hold_ns(s) / PACE_QUANTA;
}

uint64_t pace_silent_ns(const struct scheduler *s)
{
    uint64_t median_ns = s->pace->median_ns;
    return median_ns ? PACE_SILENCE * median_ns : SCHEDULER_SILENT_MAX_NS;
}

uint64_t pace_rest_max_ns(const struct scheduler *s)
{
    return s->options.rest_max_ns ? s->options.rest_max_ns : SCHEDULER_REST_MAX_NS;
}
