/* Metrics of tables of keyed rows. */
#ifndef GRADPOOL_OPS_WEB_METRICS_TABLES_H
#define GRADPOOL_OPS_WEB_METRICS_TABLES_H

#include "svc/ops/snapshot/snapshot.h"

#include <stdio.h>

#define METRICS_TABLES_MAX 10000 /* maximum number of printed tables, over all jobs */

/* Prints the metrics. Returns the number of all tables, printed or not. */
size_t metrics_print_tables(const struct snapshot *s, FILE *out);

#endif
