/* Metrics of jobs with backup workers. */
#ifndef GRADPOOL_OPS_WEB_METRICS_COUNTS_H
#define GRADPOOL_OPS_WEB_METRICS_COUNTS_H

#include "svc/ops/snapshot/snapshot.h"

#include <stdio.h>

#define METRICS_JOB_RANKS_MAX 10000 /* maximum number of printed ranks, over all jobs */

/* Prints the metrics. Returns the number of all ranks of jobs with backup workers, printed or
 * not. */
size_t metrics_print_counts(const struct snapshot *s, FILE *out);

#endif
