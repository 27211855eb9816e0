/* The service as metrics in Prometheus' text format (0.0.4). */
#ifndef GRADPOOL_OPS_WEB_METRICS_H
#define GRADPOOL_OPS_WEB_METRICS_H

#include "svc/ops/snapshot/snapshot.h"

#include <stdio.h>

/* Maximum numbers of printed series. The number of series that were not printed is a separate
 * metric. */
#define METRICS_AGGREGATORS_MAX 1024
#define METRICS_LANES_MAX 4096
#define METRICS_JOBS_MAX 1000
#define METRICS_LANE_JOBS_MAX 10000 /* maximum number of printed pairs of a job and a lane */

/* Prints all metrics. `version`: version of the program. Returns 0 or -EIO. */
int metrics_print(const struct snapshot *s, const char *version, FILE *out);

#endif
