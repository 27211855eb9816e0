/* Goodbyes of workers. */
#ifndef GRADPOOL_LANE_HEAR_LEAVE_H
#define GRADPOOL_LANE_HEAR_LEAVE_H

#include "svc/lane/types.h"

/* An orderly goodbye: rounds that wait for it end with an error. */
void worker_leave(struct worker *w, bool after_failure);

/* Ranks (a bitmap of RECORD_MISSING_WORDS) that have said goodbye: rounds wait no longer for those
 * that were never connected here. Others say it themselves. Unknown jobs are no error. */
void lane_leave(struct lane *lane, uint32_t job, const uint64_t *left);

#endif
