/* Handles goodbyes of workers. */
#ifndef GRADPOOL_LANE_HEAR_LEAVE_H
#define GRADPOOL_LANE_HEAR_LEAVE_H

#include "svc/lane/types.h"

/* An orderly goodbye: rounds that wait for this rank fail. `after_failure`: the worker leaves
 * because of an error that other ranks get as well, and no round fails here. */
void worker_leave(struct worker *w, bool after_failure);

/* `left` (a bitmap of RECORD_MISSING_WORDS) are ranks that said goodbye elsewhere: rounds no longer
 * wait for those without a connection here; connected ones send their own goodbye. Unknown jobs are
 * ignored. */
void lane_leave(struct lane *lane, uint32_t job, const uint64_t *left);

#endif
