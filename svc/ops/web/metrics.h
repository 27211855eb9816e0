/* The service in Prometheus' text form (0.0.4). */
#ifndef GRADPOOL_OPS_WEB_METRICS_H
#define GRADPOOL_OPS_WEB_METRICS_H

#include "svc/ops/snapshot/snapshot.h"

#include <stdio.h>

/* Limits of the series that are printed; the number of the others is a metric itself. */
#define METRICS_AGGREGATORS_MAX 1024
#define METRICS_LANES_MAX 4096
#define METRICS_JOBS_MAX 1000
#define METRICS_LANE_JOBS_MAX 10000 /* jobs on lanes, all lanes together */

/* Prints all metrics; `version`: of the program. -EIO. */
int metrics_print(const struct snapshot *s, const char *version, FILE *out);

#endif
