/* Applies the pushes of a clock, shard by shard, in stripes. */
#ifndef GRADPOOL_LANE_ROWS_APPLY_APPLY_H
#define GRADPOOL_LANE_ROWS_APPLY_APPLY_H

#include "svc/lane/rows/types.h"

/* Works on one part of a stripe of one of the job's tables. Returns whether there was work. */
bool apply_work(struct lane_tables *tables);
/* Removes the pushes of a rank from the stripe in progress. The rank's requests may be dropped
 * before this call, because dropped requests keep their memory. Rows that were updated with the
 * rank's gradients stay unchanged; later rows are updated without the rank's gradients. */
void apply_forget(struct lane_tables *tables, uint32_t rank);

#endif
