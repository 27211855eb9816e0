/* The longest waits that the scheduler promises (F7). PURE. */
#ifndef GRADPOOL_PACKER_ELASTIC_BOUND_H
#define GRADPOOL_PACKER_ELASTIC_BOUND_H

#include <stdint.h>

struct bound_case {
    uint32_t slots;   /* of the site, or of the tenant's equal part */
    uint32_t ahead;   /* workers_min of all jobs up to this one in the queue, its own included */
    uint32_t overdue; /* most workers_min of overdue rests during the wait, its own included */
    /* Jobs in both with workers_min above a quarter of the slots; for a rest, one more if a job
     * with workers_min above three quarters probes meanwhile. */
    uint32_t wide;
    uint64_t quantum_ns; /* longest during the wait */
    uint64_t probe_ns;   /* longest time from start to first report, or to silence */
    uint64_t leave_ns;   /* longest time from LEAVE or REST to the free slot */
    uint64_t rest_max_ns;
};

/* From submit to start. Stages that hold slots meanwhile are not counted. */
uint64_t bound_arrival_ns(const struct bound_case *c);
/* From rest to going on. */
uint64_t bound_rest_ns(const struct bound_case *c);

#endif
