/* Pieces that are about to move here: whether their workers are ready for the first round. */
#ifndef GRADPOOL_LANE_MOVE_AHEAD_H
#define GRADPOOL_LANE_MOVE_AHEAD_H

#include "svc/lane/lane.h"

/* 0: all ranks of the job's pieces are connected, and their lent memory is warm. -EAGAIN: not yet;
 * -ENOENT: the job is not here; -ECONNABORTED: the job has failed. */
int lane_has_workers(struct lane *lane, uint32_t job);

#endif
