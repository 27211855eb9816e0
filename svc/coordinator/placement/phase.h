/* When the lane work of a job comes, where that can be told: K36. */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_PHASE_H
#define GRADPOOL_COORDINATOR_PLACEMENT_PHASE_H

#include "svc/coordinator/job/job.h"

/* Its lane has told of rounds that began since the look before. `span_ns`: how long they took; 0:
 * not known. */
void phases_take(struct share *share, const WIRE(JobUse) * use, uint64_t span_ns);
/* The lane has told when the job's first round there was over: its early feedback. */
void phases_take_first(struct job *job, const struct share *share, const WIRE(JobUse) * use);
/* On the clock of this host; window_ns 0: not steady, or not known. */
struct phase_burst job_phase(const struct job *job);

#endif
