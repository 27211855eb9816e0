/* Memory that a lane is going to allocate. The control thread prepares it with its pages, so that
 * neither a move nor a first round has page faults on the lane (A73). Functions of this header are
 * for the lane's thread. */
#ifndef GRADPOOL_LANE_WANTED_H
#define GRADPOOL_LANE_WANTED_H

#include "svc/lane/lane.h"

/* Arrays that placing one piece allocates. 0: none, or the piece is already here. */
struct wanted_arrays {
    size_t state_bytes, kept_bytes;
};

/* Computes the memory that placing these pieces allocates: one row of arrays for each piece, and
 * everything else as a sum. -ENOSPC (limit of the lane), -EDQUOT (limit of the job): the caller
 * prepares nothing. -EINVAL: too many workers. */
int wanted_by_pieces(struct lane *lane, uint32_t job, uint32_t workers,
                     const struct lane_piece *pieces, size_t count, struct wanted_arrays *ret_rows,
                     size_t *ret_rest_bytes);

/* Lists the sizes of the allocations for which jobs wait, at most `room`, and returns their
 * number. */
size_t wanted_by_jobs(const struct lane *lane, size_t *ret_bytes, size_t room);
/* Lets waiting jobs continue, because the memory is ready. `why_not` not NULL: there is no memory,
 * and the waiting jobs fail with this reason. */
void wanted_is_ready(struct lane *lane, const char *why_not);

#endif
