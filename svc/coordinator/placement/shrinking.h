/* Who would shrink for a job that arrives and does not fit: said, not done (K49). */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_SHRINKING_H
#define GRADPOOL_COORDINATOR_PLACEMENT_SHRINKING_H

#include "svc/coordinator/job/job.h"

/* Once for each job, in the log and among the events. */
void shrinking_say(struct job *arriving);

#endif
