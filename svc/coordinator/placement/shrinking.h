/* Advises which job could release a worker for a new job that does not fit (K49). */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_SHRINKING_H
#define GRADPOOL_COORDINATOR_PLACEMENT_SHRINKING_H

#include "svc/coordinator/job/job.h"

/* Writes the advice to the log and the events, once for each new job. */
void shrinking_say(struct job *arriving);

#endif
