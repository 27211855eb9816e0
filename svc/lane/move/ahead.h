/* Checks whether the workers of pieces that will move to this lane are ready for the first
 * round. */
#ifndef GRADPOOL_LANE_MOVE_AHEAD_H
#define GRADPOOL_LANE_MOVE_AHEAD_H

#include "svc/lane/lane.h"

/* Returns 0 if each rank of the job's pieces has left, or is connected with its memory mapped in
 * advance. -EAGAIN: some rank is not ready yet. -ENOENT: the job is not on this lane.
 * -ECONNABORTED: the job has failed. */
int lane_has_workers(struct lane *lane, uint32_t job);

#endif
