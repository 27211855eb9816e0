/* The failure of a job on its lane. */
#ifndef GRADPOOL_AGGREGATOR_FAILURE_H
#define GRADPOOL_AGGREGATOR_FAILURE_H

#include "svc/aggregator/lane_types.h"

void job_fail(struct lane_job *job, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
