/* Metrics of sites and of jobs of pools. */
#ifndef GRADPOOL_OPS_WEB_METRICS_POOLS_H
#define GRADPOOL_OPS_WEB_METRICS_POOLS_H

#include "svc/ops/snapshot/snapshot.h"

#include <stdio.h>

/* Prints the metrics of all sites. The number of sites is small, because an option of the service
 * names them. */
void metrics_print_pools(const struct snapshot *s, FILE *out);

#endif
