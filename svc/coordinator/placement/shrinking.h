/* Advises operators which job could release a worker for a new job that does not fit (K49). */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_SHRINKING_H
#define GRADPOOL_COORDINATOR_PLACEMENT_SHRINKING_H

#include "svc/coordinator/job/job.h"

/* Logs the advice and adds it to the events, once for each new job. */
void shrinking_say(struct job *arriving);

#endif
