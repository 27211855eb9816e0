/* Tables of keyed rows, as text and as JSON. */
#ifndef GRADPOOL_OPS_ANSWER_ROW_TABLES_H
#define GRADPOOL_OPS_ANSWER_ROW_TABLES_H

#include "svc/ops/json/json_put.h"
#include "svc/ops/snapshot/row_tables.h"

#include <stdio.h>

/* Prints a row a table, then the reason of each failed one. Returns 0, -ENOMEM or -EIO. */
int row_tables_print(const struct view_tables *tables, FILE *out);
json_t *row_tables_json(const struct view_tables *tables, int *error);

#endif
