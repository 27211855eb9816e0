/* Metrics of tables of keyed rows. */
#ifndef GRADPOOL_OPS_WEB_METRICS_TABLES_H
#define GRADPOOL_OPS_WEB_METRICS_TABLES_H

#include "svc/ops/snapshot/snapshot.h"

#include <stdio.h>

#define METRICS_TABLES_MAX 10000 /* printed tables, of all jobs */

/* Returns the number of all tables. */
size_t metrics_print_tables(const struct snapshot *s, FILE *out);

#endif
