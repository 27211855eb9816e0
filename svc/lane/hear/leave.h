/* Handles goodbyes of workers. */
#ifndef GRADPOOL_LANE_HEAR_LEAVE_H
#define GRADPOOL_LANE_HEAR_LEAVE_H

#include "svc/lane/types.h"

/* Handles a goodbye. Rounds that wait for this rank fail, unless `after_failure`: the worker leaves
 * because of an error that the other ranks get as well. */
void worker_leave(struct worker *w, bool after_failure);

/* `left` (a bitmap of RECORD_MISSING_WORDS) lists ranks that have said goodbye elsewhere. Rounds no
 * longer wait for those that have no connection here; connected ones send their own goodbye.
 * Unknown jobs are ignored. */
void lane_leave(struct lane *lane, uint32_t job, const uint64_t *left);

#endif
