/* Prints the counts of a job with backup workers, as text, cells of a table, and JSON. */
#ifndef GRADPOOL_OPS_ANSWER_COUNTS_H
#define GRADPOOL_OPS_ANSWER_COUNTS_H

#include "svc/ops/answer/table.h"
#include "svc/ops/json/json_put.h"
#include "svc/ops/snapshot/counts.h"

/* Prints two lines: the counts of rounds and gradients, and the reasons for which rounds closed. */
void counts_print(const struct view_counts *counts, FILE *out);
/* Prints one row for each rank. Returns 0, -ENOMEM or -EIO. */
int counts_print_ranks(const struct view_counts *counts, FILE *out);
/* Adds two cells for a job: mean number of gradients, and share of dropped gradients. Adds dashes
 * if `counts` is NULL. */
void counts_add_job(struct table *table, const struct view_counts *counts);
/* Adds the cells of one rank: gradients counted, gradients dropped, dropped share, mean time. Adds
 * dashes for a rank without counts. */
void counts_add_rank(struct table *table, const struct view_counts *counts, uint32_t rank);
json_t *counts_json(const struct view_counts *counts, int *error);

#endif
