/* Failure of a job on its lane: rounds in progress end, and every worker receives the error. */
#ifndef GRADPOOL_LANE_JOB_FAILURE_H
#define GRADPOOL_LANE_JOB_FAILURE_H

#include "svc/lane/types.h"

void job_fail(struct lane_job *job, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Fails the job because the worker has broken the protocol, and disconnects the worker. `why`: a
 * noun and its fault, such as "a record of an unknown type". */
void job_evict(struct worker *w, const char *why);

#endif
