/* The longest waits that the scheduler promises (F7). PURE. */
#ifndef GRADPOOL_PACKER_ELASTIC_BOUND_H
#define GRADPOOL_PACKER_ELASTIC_BOUND_H

#include <stdint.h>

struct bound_case {
    uint32_t slots; /* slots of the site, or of the tenant's equal part */
    uint32_t ahead; /* sum of workers_min of all jobs in the queue up to this one, inclusive */
    /* maximum sum of workers_min of overdue rests during the wait, this one included */
    uint32_t overdue;
    /* Number of jobs, in the sums of `ahead` and `overdue`, with workers_min above a quarter of the
     * slots. For a rest, one more if a job with workers_min above three quarters probes
     * meanwhile. */
    uint32_t wide;
    uint64_t quantum_ns; /* longest quantum during the wait */
    uint64_t probe_ns;   /* longest time from start to first report, or to silence */
    uint64_t leave_ns;   /* longest time from LEAVE or REST to the free slot */
    uint64_t rest_max_ns;
};

/* Returns the longest wait from submit to start. Slots of stages are not counted. */
uint64_t bound_arrival_ns(const struct bound_case *c);
/* Returns the longest wait from rest to GO_ON. */
uint64_t bound_rest_ns(const struct bound_case *c);

#endif
