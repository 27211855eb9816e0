/* Handles goodbyes that workers have sent to this lane or to the coordinator. */
#ifndef GRADPOOL_LANE_HEAR_LEAVE_H
#define GRADPOOL_LANE_HEAR_LEAVE_H

#include "svc/lane/types.h"

/* Handles a goodbye. Rounds that wait for this rank fail, with two exceptions. In an elastic job no
 * round fails, because the coordinator decides how the job continues. With `after_failure` no round
 * fails, because the other ranks also receive the error after which the worker leaves. */
void worker_leave(struct worker *w, bool after_failure);

/* Handles goodbyes that ranks have sent to the coordinator. `left`: bitmap (RECORD_MISSING_WORDS
 * words) of these ranks. Only ranks without a connection to this lane count, because a connected
 * rank sends its own goodbye. Unknown jobs are ignored. */
void lane_leave(struct lane *lane, uint32_t job, const uint64_t *left);

#endif
