/* Answers pulls: stores rows in the memory of workers. */
#ifndef GRADPOOL_LANE_ROWS_PULL_H
#define GRADPOOL_LANE_ROWS_PULL_H

#include "svc/lane/rows/types.h"

/* Works on one pull of the job whose rows are ready. Returns whether there was work; an eviction
 * counts as work. */
bool pull_work(struct lane_tables *tables);
/* Returns whether rows were read for the pull. */
bool pull_has_begun(const struct row_request *pull);

#endif
