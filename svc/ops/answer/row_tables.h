/* Tables of keyed rows, as text and as JSON. */
#ifndef GRADPOOL_OPS_ANSWER_ROW_TABLES_H
#define GRADPOOL_OPS_ANSWER_ROW_TABLES_H

#include "svc/ops/json/json_put.h"
#include "svc/ops/snapshot/row_tables.h"

#include <stdio.h>

/* Prints a row a table, then the reason of each failed one, and the number of those that were left
 * out. Returns 0, -ENOMEM or -EIO. */
int row_tables_print(const struct view_tables *tables, FILE *out);
/* Adds the tables to an object of a job: "tables", and "tables_left_out" if some are. */
void row_tables_put(json_t *o, const struct view_tables *tables, int *error);

#endif
