/* Pieces that are to come: whether their workers are ready for the first round here. */
#ifndef GRADPOOL_LANE_MOVE_AHEAD_H
#define GRADPOOL_LANE_MOVE_AHEAD_H

#include "svc/lane/lane.h"

/* All ranks of the job's pieces are connected, and the memory that they lend costs no page fault.
 * -EAGAIN: not yet; -ENOENT: the job is not here; -ECONNABORTED: it has failed. */
int lane_has_workers(struct lane *lane, uint32_t job);

#endif
