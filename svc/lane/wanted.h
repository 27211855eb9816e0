/* Memory that a lane will allocate: the control thread prepares it with its pages, so that neither
 * a move nor a first round has page faults on the lane (A73). Functions of this header belong to
 * the lane's thread. */
#ifndef GRADPOOL_LANE_WANTED_H
#define GRADPOOL_LANE_WANTED_H

#include "svc/lane/lane.h"

/* Arrays that placing one piece allocates; 0: none, or the piece is here already. */
struct wanted_arrays {
    size_t state_bytes, kept_bytes;
};

/* Memory that placing the pieces allocates: arrays in one row a piece, the rest in one sum.
 * -ENOSPC, -EDQUOT: beyond the limit of the lane, of the job; the caller prepares nothing then.
 * -EINVAL: too many workers. */
int wanted_by_pieces(struct lane *lane, uint32_t job, uint32_t workers,
                     const struct lane_piece *pieces, size_t count, struct wanted_arrays *ret_rows,
                     size_t *ret_rest_bytes);

/* Sizes of the allocations that jobs wait for, `room` at most; returns how many. */
size_t wanted_by_jobs(const struct lane *lane, size_t *ret_bytes, size_t room);
/* The memory is ready: waiting jobs continue. `why_not` not NULL: there is no memory, and waiting
 * jobs fail with this reason. */
void wanted_is_ready(struct lane *lane, const char *why_not);

#endif
