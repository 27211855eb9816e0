/* The longest waits that the scheduler promises (F7). PURE. */
#ifndef GRADPOOL_PACKER_ELASTIC_BOUND_H
#define GRADPOOL_PACKER_ELASTIC_BOUND_H

#include <stdint.h>

struct bound_case {
    /* number of slots of the site, or of the equal part of the slots that a tenant gets */
    uint32_t slots;
    uint32_t ahead; /* sum of workers_min over this job and all jobs before it in the queue */
    /* largest sum of workers_min over the jobs whose rest is overdue during the wait, including
     * this job */
    uint32_t overdue;
    /* Number of jobs with workers_min above a quarter of the slots, among the jobs counted in
     * `ahead` and `overdue`. For bound_rest_ns() the number is one higher if a job with workers_min
     * above three quarters of the slots starts during the rest. */
    uint32_t wide;
    uint64_t quantum_ns; /* longest quantum during the wait */
    /* longest time from the start of a job to its first report, or until it counts as silent */
    uint64_t probe_ns;
    uint64_t leave_ns; /* longest time from LEAVE or REST to the free slot */
    uint64_t rest_max_ns;
};

/* Returns the longest wait from the submission of a job to its start. The bound ignores stages. */
uint64_t bound_arrival_ns(const struct bound_case *c);
/* Returns the longest time from the start of a rest to the action GO_ON. */
uint64_t bound_rest_ns(const struct bound_case *c);

#endif
