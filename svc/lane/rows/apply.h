/* Applies the pushes of a clock, shard by shard, in stripes. */
#ifndef GRADPOOL_LANE_ROWS_APPLY_H
#define GRADPOOL_LANE_ROWS_APPLY_H

#include "svc/lane/rows/types.h"

/* Works on one part of a stripe, of any table of the job. Returns whether there was work. */
bool apply_work(struct lane_tables *tables);
/* Removes the pushes of a rank from the stripe in progress. The caller has not freed its requests
 * yet. Rows that are applied stay so; no other row gets a gradient of the rank. */
void apply_forget(struct lane_tables *tables, uint32_t rank);

#endif
