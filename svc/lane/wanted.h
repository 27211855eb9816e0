/* Memory that a lane will need: the control thread gets it ready, pages and all, before the lane
 * asks for it, so that neither a move nor a first round has page faults on a lane (A73). Everything
 * here belongs to the lane's thread. */
#ifndef GRADPOOL_LANE_WANTED_H
#define GRADPOOL_LANE_WANTED_H

#include "svc/lane/lane.h"

/* Arrays of one piece that is to be placed; 0: it needs none, or has it. */
struct wanted_arrays {
    size_t state_bytes, kept_bytes;
};

/* Memory that placing them allocates: arrays, one row a piece, and all else together. -ENOSPC,
 * -EDQUOT: more than the lane, or the job, may hold; nothing should be made ready then. */
int wanted_by_pieces(struct lane *lane, uint32_t job, uint32_t workers,
                     const struct lane_piece *pieces, size_t count, struct wanted_arrays *ret_rows,
                     size_t *ret_rest_bytes);

/* Allocations that jobs wait for, `room` at most; returns how many. */
size_t wanted_by_jobs(const struct lane *lane, size_t *ret_bytes, size_t room);
/* The memory is ready: the jobs that waited go on. `why_not`: it cannot be had, and they fail. */
void wanted_is_ready(struct lane *lane, const char *why_not);

#endif
