/* Tables of keyed rows, as text and as JSON. */
#ifndef GRADPOOL_OPS_ANSWER_ROW_TABLES_H
#define GRADPOOL_OPS_ANSWER_ROW_TABLES_H

#include "svc/ops/json/json_put.h"
#include "svc/ops/snapshot/row_tables.h"

#include <stdio.h>

/* Prints one row for each table, then the reason for the failure of each failed table, and the
 * number of tables that were left out. Returns 0, -ENOMEM or -EIO. */
int row_tables_print(const struct view_tables *tables, FILE *out);
/* Adds the member "tables" to the object of a job, and "tables_left_out" if some tables were left
 * out. */
void row_tables_put(json_t *o, const struct view_tables *tables, int *error);

#endif
